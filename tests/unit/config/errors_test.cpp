// The table of mistakes (tests/errors/config.json) through the library: each gives exactly its text.
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "front/app/config/config_verb.h"
#include "unit/config/support.h"
#include "support/source_folder/source_folder.h"

namespace lockstep::config {
namespace {

using Json = nlohmann::json;

std::string lines(const Json& list) { return base::join(list.get<std::vector<std::string>>(), "\n"); }

// Runs `body` in `folder`, because messages name files as they were typed.
template <typename Body>
void inside(const std::filesystem::path& folder, Body body) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  body();
  std::filesystem::current_path(before);
}

std::string message_of(const Json& one) {
  const auto args = one["args"].get<std::vector<std::string>>();
  const auto environment = one.value("environment", std::map<std::string, std::string>());
  const std::span<const std::string> all(args);
  return mistake([&] {
    if (args[0] == "config" && args[1] != "show") {
      (void)app::run_config_verb(all.subspan(1));
      return;
    }
    const bool train = args[0] == "train";
    const CommandLine line = parse_command_line(all.subspan(train ? 1 : 2), environment);
    expect_no_leftover(line, train ? "lockstep train" : "lockstep config show");
    const RunConfig config = load(line.request).values;
    if (train) (void)plan_batch(config, static_cast<int>(config.parallel.ranks));
  });
}

TEST(ConfigErrors, EveryMistakeSaysExactlyThis) {
  const Json table = Json::parse(base::read_text(test::source_folder() + "/tests/errors/config.json"));
  ASSERT_GE(table.size(), 40u);
  for (const Json& one : table) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const TemporaryFolder folder;
    std::filesystem::path place = folder.write("placeholder", "").parent_path();
    if (one.contains("file")) {
      const std::string text = lines(one["file"]) + "\n";
      folder.write(text.front() == '{' ? "bad.json" : "bad.yaml", text);
    }
    inside(place, [&] { EXPECT_EQ(message_of(one), lines(one["error"])); });
    EXPECT_EQ(one["exit"], 2);
  }
}

}  // namespace
}  // namespace lockstep::config
