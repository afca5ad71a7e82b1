// metrics.jsonl: what is written, what a resumed run keeps, and how it is followed.
#include "journal/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "journal/run_folder.h"
#include "journal/tail.h"
#include "journal/scalars/tensorboard.h"
#include "support/files/faulty_files.h"

namespace lockstep::journal {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-metrics-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "metrics.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write_file(std::string_view text) { std::ofstream(path_, std::ios::binary) << text; }
  void append(std::string_view text) { std::ofstream(path_, std::ios::binary | std::ios::app) << text; }
  // The file's lines up to the last "started" one, which this start wrote.
  std::string kept() const {
    const std::string text = base::read_text(path_);
    return text.substr(0, text.rfind("{\"event\":\"started\""));
  }
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(MetricsTest, StepLineHasTheFieldsInOrderAndNullForWhatIsNotANumber) {
  StepLine line{.step = 3, .loss = NAN, .trained = 1 << 20, .memory_bytes = {1, 2}};
  const auto json = nlohmann::ordered_json::parse(to_json_line(line));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"step", "epoch", "loss", "grad_norm", "learning_rate", "tokens", "tokens_per_second", "step_seconds",
                                      "data_seconds", "communication_seconds", "memory_bytes", "mfu", "skipped_steps", "time"}));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["mfu"].is_null());
  EXPECT_EQ(json["memory_bytes"], (std::vector<int>{1, 2}));
}

TEST_F(MetricsTest, WhatIsCountedAndMeasuredIsNamedByTheTask) {
  const auto names = [](const std::string& line) {
    std::vector<std::string> found;
    const auto json = nlohmann::ordered_json::parse(line);
    for (const auto& [name, value] : json.items()) found.push_back(name);
    return found;
  };
  EXPECT_EQ(names(to_json_line(EvalLine{.step = 1, .measures = {{"perplexity", 9}, {"accuracy", 0.5}}, .trained = 7})),
            (std::vector<std::string>{"step", "eval_loss", "eval_perplexity", "eval_accuracy", "eval_tokens", "time"}));
  EXPECT_EQ(names(to_json_line(EvalLine{.step = 1, .measures = {{"distance", 3}}, .counted = "images"})),
            (std::vector<std::string>{"step", "eval_loss", "eval_distance", "eval_images", "time"}));
  const auto step = nlohmann::json::parse(to_json_line(StepLine{.step = 1, .counted = "images", .trained = 8, .trained_per_second = 2}));
  EXPECT_EQ(step["images"], 8);
  EXPECT_EQ(step["images_per_second"], 2);
  EXPECT_FALSE(step.contains("tokens"));
}

TEST_F(MetricsTest, ResumeKeepsExactlyWhatCameBefore) {
  const std::string before =
      "{\"event\":\"model\",\"parameters\":5}\n{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n{\"event\":\"checkpoint\",\"step\":2}\n";
  struct Case {
    std::string what, file;
    std::int64_t step;
    std::string kept;
  };
  for (const auto& c : std::vector<Case>{
           {"no file", "", 0, ""},
           {"new start", before, 0, ""},
           {"nothing past the step", before, 2, before},
           {"lines past the step go, with all after them", before + "{\"step\":3}\n{\"event\":\"note\",\"text\":\"x\"}\n", 2, before},
           {"a line cut off by a crash goes", before + "{\"step\":2,\"lo", 2, before},
           {"what is no JSON goes", before + "\0\0\0\n", 2, before},
       }) {
    write_file(c.file);
    if (c.file.empty()) std::filesystem::remove(path_);
    { MetricsWriter writer(path_, c.step); }
    EXPECT_EQ(kept(), c.kept) << c.what;
  }
}

TEST_F(MetricsTest, AnotherTimelinesLinesMayComeFirst) {
  write_file("{\"step\":1,\"loss\":9}\n");
  const auto old = folder_ / "old.jsonl";
  std::ofstream(old) << "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n{\"step\":3,\"loss\":1}\n";
  { MetricsWriter writer(path_, {.resumed_at_step = 2, .history = old}); }
  EXPECT_EQ(kept(), "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n");
  { MetricsWriter writer(path_, {.resumed_at_step = 2, .history = folder_ / "nowhere"}); }
  EXPECT_EQ(kept(), "");
}

TEST_F(MetricsTest, AFullDiskEndsNothing) {
  support::FaultyFiles files;
  std::vector<std::string> said;
  MetricsWriter writer(path_,
                       {.say = [&](std::string_view text) { said.emplace_back(text); }, .files = &files, .patience = {.retry_s = 0}});
  writer.write_event(R"({"step":1})");
  files.disk_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_)) + 5;
  for (int step = 2; step <= 40; ++step) writer.write_event(fmt::format(R"({{"step":{}}})", step));
  ASSERT_EQ(said.size(), 1u) << "once";
  EXPECT_NE(said[0].find("metrics.jsonl cannot be written (No space left on device). Training goes on"), std::string::npos) << said[0];
  files.disk_bytes = support::FaultyFiles::never;
  writer.write_event(R"({"step":41})");
  EXPECT_EQ(said.size(), 1u) << "the file itself tells of the end";
  EXPECT_EQ(writer.finish(), 0);
  std::vector<int> steps;
  bool noted = false;
  for (const std::string& line : Tail(path_).poll().lines) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("event")) steps.push_back(json["step"]);
    noted = noted || (json.value("event", "") == "note" &&
                      json["text"].get<std::string>().find("is written again: 40 lines had waited") != std::string::npos);
  }
  std::vector<int> all(41);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps, all);
  EXPECT_TRUE(noted);
}

TEST_F(MetricsTest, ADiskThatIsFullFromTheStartIsWaitedForButNotOneThatRefuses) {
  support::FaultyFiles files;
  files.disk_bytes = 0;
  write_file("{\"step\":1}\n{\"step\":2}\n");
  MetricsWriter writer(path_, {.resumed_at_step = 1, .files = &files, .patience = {.retry_s = 0}});
  writer.write_event(R"({"step":2,"again":true})");
  EXPECT_EQ(base::read_text(path_), "{\"step\":1}\n{\"step\":2}\n") << "the lines of before stay until there is room for new ones";
  EXPECT_EQ(writer.finish(), 1);
  files.disk_bytes = support::FaultyFiles::never;
  EXPECT_EQ(writer.finish(), 0);
  EXPECT_EQ(kept(), "{\"step\":1}\n");
  EXPECT_NE(base::read_text(path_).find("again"), std::string::npos);

  support::FaultyFiles broken;
  broken.fail_at = 0;
  EXPECT_THROW(MetricsWriter(path_, {.files = &broken}), base::UserError);
}

TEST_F(MetricsTest, ScalarsOutliveAFullDiskInWholeRecords) {
  std::string whole;
  for (const bool full : {false, true}) {
    support::FaultyFiles files;
    const auto folder = folder_ / (full ? "full" : "free");
    TensorBoardWriter writer(folder, 3, files, {.retry_s = 0});
    for (int step = 4; step < 9; ++step) {
      if (full) files.disk_bytes = step == 8 ? support::FaultyFiles::never : 150;  // in the middle of a record
      writer.write(step, std::vector<Scalar>{{"train/loss", 0.5}});
    }
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) text = base::read_text(entry.path());
    if (!full) whole = text;
    EXPECT_EQ(text.size(), whole.size());
  }
}

TEST_F(MetricsTest, AppendsWholeLines) {
  MetricsWriter writer(path_, 0);
  writer.write(StepLine{.step = 1, .loss = 2.5});
  writer.write(EvalLine{.step = 1, .loss = 2.25, .trained = 100});
  writer.write_event(R"({"event":"note","text":"hello"})");
  Tail tail(path_);
  const auto lines = tail.poll().lines;
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["event"], "started");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["loss"], 2.5);
  EXPECT_EQ(nlohmann::json::parse(lines[2])["eval_tokens"], 100);
  EXPECT_EQ(lines[3], R"({"event":"note","text":"hello"})");
}

TEST_F(MetricsTest, TailGivesWholeLinesOnceAndNoticesAnotherFile) {
  Tail tail(path_);
  EXPECT_TRUE(tail.poll().lines.empty());
  append("one\ntw");
  EXPECT_EQ(tail.poll().lines, std::vector<std::string>{"one"});
  append("o\n");
  EXPECT_EQ(tail.poll().lines, std::vector<std::string>{"two"});
  EXPECT_TRUE(tail.poll().lines.empty());
  append(std::string(200000, 'x') + "\nend\n");
  EXPECT_EQ(tail.poll().lines, (std::vector<std::string>{std::string(200000, 'x'), "end"}));

  base::write_text_atomically(base::real_files(), path_, "one\nother\n");
  auto update = tail.poll();
  EXPECT_TRUE(update.replaced);
  EXPECT_EQ(update.lines, (std::vector<std::string>{"one", "other"}));
  EXPECT_FALSE(tail.poll().replaced);
  write_file("short\n");  // cut in place
  update = tail.poll();
  EXPECT_TRUE(update.replaced);
  EXPECT_EQ(update.lines, std::vector<std::string>{"short"});
}

TEST_F(MetricsTest, TailCanPassOverWhatIsThere) {
  append("old\nhal");
  Tail tail(path_);
  tail.skip_to_end();
  append("f\nnew\n");
  EXPECT_EQ(tail.poll().lines, (std::vector<std::string>{"f", "new"}));
}

TEST_F(MetricsTest, LastLines) {
  EXPECT_TRUE(last_lines(path_, 3).empty());
  append("one\ntwo\nthree\nfour\n\n");
  EXPECT_EQ(last_lines(path_, 2), (std::vector<std::string>{"three", "four"}));
  EXPECT_EQ(last_lines(path_, 9), (std::vector<std::string>{"one", "two", "three", "four"}));
  append(std::string(500000, 'y') + "\nlast");
  EXPECT_EQ(last_lines(path_, 1), std::vector<std::string>{"last"});
}

TEST_F(MetricsTest, ListsWholeCheckpointsOnly) {
  const auto make = [&](const std::string& name, bool manifest) {
    std::filesystem::create_directories(folder_ / name);
    if (manifest) std::ofstream(folder_ / name / "manifest.json") << "{}";
  };
  make("step-000020", true);
  make("step-000003", true);
  make("step-000040.partial", true);
  make("step-000050", false);
  make("other", true);
  const auto found = list_checkpoints(folder_);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 3);
  EXPECT_EQ(found[1].path, checkpoint_folder(folder_, 20));
  EXPECT_TRUE(list_checkpoints(folder_ / "nowhere").empty());
}

}  // namespace
}  // namespace lockstep::journal
