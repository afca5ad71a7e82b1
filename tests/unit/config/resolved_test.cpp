// The resolved file reads back as the same values, whatever they are.
#include <cmath>
#include <limits>
#include <random>

#include "config/table/option.h"
#include "unit/config/support.h"
#include "support/source_folder/source_folder.h"

namespace lockstep::config {
namespace {

RunConfig round_trip(const Settings& settings) {
  const TemporaryFolder folder;
  return load_resolved(folder.write("config.yaml", to_yaml(settings)));
}

TEST(ConfigResolved, Defaults) {
  const Settings settings = load({});
  EXPECT_TRUE(round_trip(settings) == settings.values);
}

// A run folder of an earlier version goes on working though it holds settings that are none any more.
TEST(ConfigResolved, SettingsOfEarlierVersions) {
  const TemporaryFolder folder;
  const std::string old = "trainer: { seed: 7, load_balance_alpha: 0, group_size: 0, beta_kl: 0 }\nparallel: { broadcast_buffers: true }\n";
  EXPECT_EQ(load_resolved(folder.write("config.yaml", old)).trainer.seed, 7);
  EXPECT_THROW(load({.file = folder.write("config.yaml", old), .environment = {}, .assignments = {}}), base::UserError);
}

TEST(ConfigResolved, ModelFiles) {
  for (const char* name : {"nano", "small", "large"}) {
    const Settings settings =
        load({.file = fmt::format("{}/models/{}.yaml", test::source_folder(), name), .environment = {}, .assignments = {}});
    EXPECT_TRUE(round_trip(settings) == settings.values) << name;
    EXPECT_EQ(settings.values.model.name, name);
  }
}

// They leave the model's folder to the command line, and must be readable without it.
TEST(ConfigResolved, ModelFilesOfAdapters) {
  for (const char* name : {"llama-3.2-1b-lora", "llama-3.1-8b-lora", "qwen2.5-7b-qlora"}) {
    const Settings settings =
        load({.file = fmt::format("{}/models/{}.yaml", test::source_folder(), name), .environment = {}, .assignments = {}});
    EXPECT_TRUE(round_trip(settings) == settings.values) << name;
    EXPECT_TRUE(settings.values.lora.enabled && settings.values.model.path.empty()) << name;
  }
}

TEST(ConfigResolved, AwkwardTexts) {
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "~",
                                          "null",
                                          "true",
                                          "no",
                                          "1e5",
                                          "0x10",
                                          "a: b",
                                          "a # b",
                                          "# a",
                                          "- a",
                                          "[a]",
                                          "{a}",
                                          "*a",
                                          "&a",
                                          "!a",
                                          "%a",
                                          "@a",
                                          "`a`",
                                          "|",
                                          ">",
                                          "'a'",
                                          "\"a\"",
                                          "a\\nb",
                                          "a\nb",
                                          "a\tb",
                                          "a\r\n",
                                          "\x01\x1f\x7f",
                                          "C:\\dir",
                                          "\xc3\xa9\xe2\x82\xac",
                                          "\xf0\x9f\x98\x80",
                                          "trailing ",
                                          " leading",
                                          "/data/a b.bin",
                                          "..",
                                          "-1",
                                          "a,b",
                                          "x=y"};
  for (const std::string& text : texts) {
    Settings settings = load({});
    settings.values.monitor.sample_prompt = text;
    settings.values.data.path = text;
    EXPECT_TRUE(round_trip(settings) == settings.values) << "[" << text << "]\n" << to_yaml(settings);
  }
}

TEST(ConfigResolved, CommandLineTextsDoNotEscapeTheirComment) {
  const Settings settings = load_args({"monitor.sample_prompt=a\nmodel:\n  num_layers: 9"});
  EXPECT_TRUE(round_trip(settings) == settings.values);
}

// Numbers of every size, drawn within each option's range.
TEST(ConfigResolved, AnyNumbers) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 4; ++round) {
    for (const Option& option : options()) {
      Settings settings = load({});
      const Range& range = option.about.range;
      const double least = std::max(range.least, -1e300), most = std::min(range.most, 1e300);
      const double share = std::uniform_real_distribution<double>(0, 1)(random);
      if (option.kind == Kind::number) {
        const double value = std::pow(10, share * 20 - 15) + std::max(least, 0.0);
        if (range.holds(value)) option.set(settings.values, value);
      } else if (option.kind == Kind::integer && option.section() != "model") {
        const auto value = static_cast<std::int64_t>(std::max(least, 0.0) + share * std::min(most - least, 9e15));
        if (range.holds(static_cast<double>(value))) option.set(settings.values, value);
      } else {
        continue;
      }
      try {
        EXPECT_TRUE(round_trip(settings) == settings.values) << option.key << "\n" << to_yaml(settings);
      } catch (const base::UserError&) {
        // The drawn value contradicts another default (seq_len above max_seq_len); only that may stop it.
        EXPECT_TRUE(option.key == "data.seq_len" || option.key == "parallel.node_rank" || option.key == "parallel.nnodes" ||
                    option.key == "monitor.stall_seconds" || option.key == "monitor.stall_abort_seconds" ||
                    option.key == "trainer.recompute_every" || option.key == "parallel.replicate")
            << option.key;
      }
    }
  }
}

TEST(ConfigResolved, SaysWhereValuesCameFrom) {
  const std::string text = to_yaml(load_text("trainer:\n  seed: 7\n", {"--lr", "0.5"}, {{"LOCKSTEP_DATA_WORKERS", "3"}}));
  for (const char* part : {"run.yaml:2\n", "learning_rate: 0.5", "# from --lr\n", "# from LOCKSTEP_DATA_WORKERS (environment)\n",
                           "# default\n", "# default: until num_epochs\n", "# follows from model.max_seq_len\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace lockstep::config
