// The table of options against the structs it binds: nothing missing, nothing twice, every default and example valid.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

// The number of fields of an aggregate: the most initializers it takes.
struct Anything {
  template <typename T>
  operator T() const;
};

template <typename T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Anything{})...}; };
}

template <typename T, std::size_t most = 64>
constexpr std::size_t field_count() {
  if constexpr (takes<T>(std::make_index_sequence<most>()))
    return most;
  else
    return field_count<T, most - 1>();
}

TEST(ConfigTable, EveryFieldIsAnOption) {
  constexpr std::size_t sections_in_run = 8, sections_in_model = 1, sections_in_trainer = 1;
  constexpr std::size_t fields = field_count<RunConfig>() - sections_in_run + field_count<ModelConfig>() - sections_in_model +
                                 field_count<RopeScalingConfig>() + field_count<LoraConfig>() + field_count<TrainerConfig>() -
                                 sections_in_trainer + field_count<DistributedConfig>() + field_count<DataConfig>() +
                                 field_count<ParallelConfig>() + field_count<CheckpointConfig>() + field_count<MonitorConfig>() +
                                 field_count<LaunchConfig>();
  EXPECT_EQ(options().size(), fields);
}

// Changing one option changes the config, and changes no other option: no two entries share a field.
TEST(ConfigTable, EachOptionHasItsOwnField) {
  for (const Option& option : options()) {
    RunConfig config;
    Value value = option.get(config);
    switch (option.kind) {
      case Kind::boolean: value = !std::get<bool>(value); break;
      case Kind::integer: value = std::get<std::int64_t>(value) + 1; break;
      case Kind::choice: value = std::get<std::int64_t>(value) == 0 ? std::int64_t{1} : std::int64_t{0}; break;
      case Kind::number: value = std::get<double>(value) + 0.5; break;
      case Kind::text: value = std::get<std::string>(value) + "x"; break;
      case Kind::integers: value = std::vector<std::int64_t>{3, 4}; break;
      case Kind::texts: value = std::vector<std::string>{"x", "y"}; break;
    }
    option.set(config, value);
    EXPECT_FALSE(config == RunConfig{}) << option.key;
    for (const Option& other : options()) {
      EXPECT_EQ(other.get(config) == other.get(RunConfig{}), other.key != option.key) << option.key << " and " << other.key;
    }
  }
}

TEST(ConfigTable, NamesAreUnique) {
  std::set<std::string> keys, flags, aliases, variables;
  for (const Option& option : options()) {
    EXPECT_TRUE(keys.emplace(option.key).second) << option.key;
    EXPECT_TRUE(variables.insert(environment_name(option)).second) << environment_name(option);
    for (const std::string_view flag : option.about.flags) EXPECT_TRUE(flags.emplace(flag).second) << flag;
    for (const Alias& alias : option.about.aliases) EXPECT_TRUE(aliases.emplace(alias.name).second) << alias.name;
  }
}

TEST(ConfigTable, EveryNameFindsItsOption) {
  for (const Option& option : options()) {
    ASSERT_TRUE(find_key(option.key));
    EXPECT_EQ(find_key(option.key)->option, &option);
    for (const std::string_view flag : option.about.flags) {
      ASSERT_TRUE(find_flag(flag)) << flag;
      EXPECT_EQ(find_flag(flag)->option, &option) << flag;
    }
    for (const Alias& alias : option.about.aliases) {
      for (const std::string& spelled :
           {std::string(alias.name), fmt::format("trainer.{}", alias.name), fmt::format("{}.{}", option.section(), alias.name)}) {
        if (spelled.starts_with('.')) continue;
        ASSERT_TRUE(find_key(spelled)) << spelled;
        EXPECT_EQ(find_key(spelled)->option, &option) << spelled;
      }
      EXPECT_FALSE(not_built_yet(alias.name)) << alias.name;
    }
    EXPECT_FALSE(not_built_yet(option.key)) << option.key;
  }
}

TEST(ConfigTable, DefaultsAndExamplesAreValid) {
  for (const Option& option : options()) {
    const Value standard = option.get(RunConfig{});
    const auto read = read_value(option, {.text = write_value(option, standard)});
    ASSERT_TRUE(std::holds_alternative<Value>(read) || option.kind == Kind::text) << option.key;
    if (option.kind != Kind::text) {
      EXPECT_EQ(std::get<Value>(read), standard) << option.key;
    }
    if (!option.about.example.empty()) {
      EXPECT_TRUE(std::holds_alternative<Value>(read_value(option, {.text = std::string(option.about.example)}))) << option.key;
    }
    for (const std::string_view word : option.about.zero_words) {
      EXPECT_TRUE(std::holds_alternative<Value>(read_value(option, {.text = std::string(word)}))) << option.key << " " << word;
    }
  }
}

TEST(ConfigTable, SentencesAreSentences) {
  for (const Option& option : options()) {
    ASSERT_FALSE(option.about.says.empty()) << option.key;
    EXPECT_TRUE(std::isupper(static_cast<unsigned char>(option.about.says.front()))) << option.key;
    EXPECT_EQ(option.about.says.back(), '.') << option.key;
  }
}

TEST(ConfigTable, EveryChoiceSpellingReads) {
  for (const Option& option : options()) {
    for (const Choice& choice : option.choices) {
      std::vector<std::string_view> spellings = choice.others;
      spellings.push_back(choice.name);
      for (const std::string_view spelling : spellings) {
        std::string upper(spelling);
        for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        for (const std::string& text : {std::string(spelling), upper}) {
          const auto read = read_value(option, {.text = text});
          ASSERT_TRUE(std::holds_alternative<Value>(read)) << option.key << " " << text;
          EXPECT_EQ(std::get<Value>(read), Value(choice.number)) << option.key << " " << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::config
