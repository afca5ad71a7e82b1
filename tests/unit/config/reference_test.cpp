// Help, schema and docs follow the table.
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "config/table/option.h"
#include "unit/config/support.h"
#include "support/source_folder/source_folder.h"

namespace lockstep::config {
namespace {

TEST(ConfigReference, CommittedDocsAreTheGeneratedOnes) {
  EXPECT_EQ(base::read_text(test::source_folder() + "/docs/configuration.md"), markdown_reference())
      << "docs/configuration.md is out of date: run `make docs`.";
}

TEST(ConfigReference, ExplainsEveryName) {
  for (const Option& option : options()) {
    const std::string text = explain(option.key);
    EXPECT_TRUE(text.starts_with(std::string(option.key) + "\n")) << text;
    EXPECT_EQ(explain(environment_name(option)), text);
    for (const std::string_view flag : option.about.flags) EXPECT_EQ(explain(flag), text);
    for (const Alias& alias : option.about.aliases) EXPECT_EQ(explain(alias.name), text);
  }
  for (const std::string& section : section_names()) EXPECT_TRUE(explain(section).starts_with(section + "\n  ")) << section;
  for (const std::string& key : known_keys()) EXPECT_NE(explain("").find(key), std::string::npos) << key;
}

TEST(ConfigReference, HelpShowsEveryFlagOnce) {
  const std::string help = flags_help();
  for (const Option& option : options()) {
    if (option.about.flags.empty()) continue;
    const std::string long_name(option.about.flags[0].substr(2));
    const std::size_t first = help.find("-" + long_name);
    const bool shown = first != std::string::npos || help.find("]" + long_name) != std::string::npos;
    EXPECT_TRUE(shown) << long_name;
  }
}

// Follows properties of the schema along a dotted key.
TEST(ConfigReference, SchemaHasEveryKey) {
  const auto schema = nlohmann::json::parse(json_schema());
  for (const Option& option : options()) {
    const nlohmann::json* here = &schema;
    std::string_view rest = option.key;
    while (!rest.empty()) {
      const std::size_t dot = rest.find('.');
      const std::string part(rest.substr(0, dot));
      ASSERT_TRUE((*here)["properties"].contains(part)) << option.key;
      here = &(*here)["properties"][part];
      rest = dot == rest.npos ? std::string_view() : rest.substr(dot + 1);
    }
    EXPECT_TRUE(here->contains("description")) << option.key;
    EXPECT_TRUE(here->contains("default")) << option.key;
    for (const Alias& alias : option.about.aliases) {
      EXPECT_TRUE(schema["properties"].contains(alias.name)) << alias.name;
      EXPECT_TRUE(schema["properties"]["trainer"]["properties"].contains(alias.name)) << alias.name;
    }
  }
  EXPECT_EQ(schema["properties"]["trainer"]["properties"]["learning_rate"]["exclusiveMinimum"], 0);
  EXPECT_EQ(schema["additionalProperties"], false);
}

}  // namespace
}  // namespace lockstep::config
