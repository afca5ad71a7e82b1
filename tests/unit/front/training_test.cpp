// A run as an object: events in order, two in one process, stopped from another thread, restarted, and not a byte printed.
#include "front/job/training.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "front/launch/libtorch.h"
#include "support/temporary_folder.h"
#include "text/train.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;
using launch::Outcome;

// What a process writes to its standard output and error meanwhile.
class Printed {
 public:
  explicit Printed(const fs::path& folder) : path_(folder / "printed") {
    std::fflush(nullptr);
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
      saved_[descriptor - 1] = ::dup(descriptor);
      ::dup2(file, descriptor);
    }
    ::close(file);
  }
  std::string end() {
    std::fflush(nullptr);
    for (int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
      ::dup2(saved_[descriptor - 1], descriptor);
      ::close(saved_[descriptor - 1]);
    }
    return base::read_text(path_);
  }

 private:
  fs::path path_;
  int saved_[2] = {};
};

// An event's name, for the order of things; those that come as often as they like are left out.
std::string name_of(const Event& event) {
  const auto line = [](const MetricsLine& metrics) {
    return metrics.json.contains("loss") ? std::string("step") : metrics.json.value("event", "evaluation");
  };
  return std::visit(
      [&]<typename One>(const One& one) -> std::string {
        if constexpr (std::is_same_v<One, MetricsLine>) return line(one);
        if constexpr (std::is_same_v<One, Planned>) return "planned";
        if constexpr (std::is_same_v<One, RankStarted>) return "rank started";
        if constexpr (std::is_same_v<One, Stopping>) return "stopping";
        if constexpr (std::is_same_v<One, Stalled>) return "stalled";
        if constexpr (std::is_same_v<One, MovesAgain>) return "moves again";
        if constexpr (std::is_same_v<One, Restarting>) return "restarting";
        if constexpr (std::is_same_v<One, DataReady>) return "data ready";
        if constexpr (std::is_same_v<One, Ended>) return "ended";
        return "";
      },
      event);
}

struct Heard {
  std::vector<std::string> names;  // each once where it comes several times in a row
  std::vector<RankStarted> ranks;
  std::optional<Restarting> restart;
  std::optional<Stalled> stall;
};

class TrainingTest : public ::testing::Test {
 protected:
  // Steps of the fake worker, with these variables beside the usual ones.
  std::unique_ptr<Training> make(const std::string& name, std::vector<std::string> settings, launch::Environment variables) {
    settings.insert(settings.end(), {"--output", folder_.path().string(), "--name", name, "--device", "cpu", "--ranks", "2"});
    launch::Environment environment = launch::process_environment();
    for (const char* unwanted : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) environment.erase(unwanted);
    environment["LOCKSTEP_WORKER"] = launch::own_program().parent_path() / "fake_worker";
    environment["FAKE_STEP_MS"] = "2";
    for (const auto& [key, value] : variables) environment[key] = value;
    const Called called{.program = "lockstep", .arguments = settings};
    return std::make_unique<Training>(config::load(config::parse_command_line(called.arguments).request), environment, called,
                                      [this](const Event& event) { hear(event); });
  }

  void hear(const Event& event) {
    if (const std::string name = name_of(event); !name.empty() && (heard_.names.empty() || heard_.names.back() != name))
      heard_.names.push_back(name);
    if (const auto* started = std::get_if<RankStarted>(&event)) heard_.ranks.push_back(*started);
    if (const auto* restart = std::get_if<Restarting>(&event)) heard_.restart = *restart;
    if (const auto* stall = std::get_if<Stalled>(&event)) heard_.stall = *stall;
    if (on_event_) on_event_(event);
  }

  Ended run(Training& training) {
    heard_ = {};
    Printed printed(folder_.path());
    Ended ended;
    try {
      ended = training.run();
    } catch (const std::exception& error) {
      printed.end();
      ADD_FAILURE() << error.what();
      return ended;
    }
    EXPECT_EQ(printed.end(), "");
    return ended;
  }

  support::TemporaryFolder folder_;
  Heard heard_;
  std::function<void(const Event&)> on_event_;
};

TEST_F(TrainingTest, TwoInOneProcessAndNothingIsPrinted) {
  const std::vector<std::string> expected = {"planned",    "rank started", "started",    "model",    "step",
                                             "checkpoint", "step",         "checkpoint", "finished", "ended"};
  for (const std::string name : {"first", "second"}) {
    const auto training = make(name, {}, {{"FAKE_STEPS", "6"}, {"FAKE_SAVE", "5"}});
    EXPECT_EQ(training->plan().world_size, 2);
    EXPECT_FALSE(fs::exists(folder_.path() / name)) << "set-up touches nothing";
    const Ended ended = run(*training);
    EXPECT_EQ(heard_.names, expected);
    ASSERT_EQ(heard_.ranks.size(), 2u);
    EXPECT_EQ(heard_.ranks[1].rank, 1);
    EXPECT_EQ(heard_.ranks[1].device, "cpu");
    EXPECT_TRUE(fs::exists(heard_.ranks[1].log));
    EXPECT_EQ(ended.outcome.kind, Outcome::Kind::complete);
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_EQ(ended.last_step, 6);
    EXPECT_DOUBLE_EQ(ended.last_loss.value_or(0), 5.0 / 6);
    EXPECT_EQ(ended.folder, folder_.path() / name);
  }
}

TEST_F(TrainingTest, IsStoppedFromAnotherThreadAndGoesOn) {
  const auto training = make("run", {}, {{"FAKE_STEPS", "100000"}});
  std::thread asks;
  on_event_ = [&](const Event& event) {
    if (const auto* line = std::get_if<MetricsLine>(&event); line != nullptr && line->json.contains("loss") && !asks.joinable())
      asks = std::thread([&] { training->stop(); });
  };
  const Ended ended = run(*training);
  asks.join();
  on_event_ = {};
  EXPECT_EQ(ended.outcome.kind, Outcome::Kind::stopped);
  EXPECT_TRUE(ended.outcome.trained);
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_TRUE(ended.has_checkpoint);
  EXPECT_NE(std::find(heard_.names.begin(), heard_.names.end(), "stopping"), heard_.names.end());
  EXPECT_TRUE(ended.resume.starts_with("lockstep train ") && ended.resume.ends_with("--name run --device cpu --ranks 2 --resume auto"))
      << ended.resume;

  const auto steps = std::to_string(ended.last_step + 3);
  const auto resumed = make("run", {"--resume", "auto"}, {{"FAKE_STEPS", steps}});
  EXPECT_EQ(run(*resumed).last_step, ended.last_step + 3);
}

TEST_F(TrainingTest, WhoeverHearsOfTheEndMayGoOn) {
  const auto training = make("run", {}, {{"FAKE_STEPS", "2"}});
  on_event_ = [&](const Event& event) {
    if (std::get_if<Ended>(&event) == nullptr) return;
    on_event_ = {};
    EXPECT_EQ(make("run", {"--resume", "auto"}, {{"FAKE_STEPS", "3"}})->run().last_step, 3);
  };
  EXPECT_EQ(run(*training).last_step, 2);
}

TEST_F(TrainingTest, EndsAtOnceWhenAskedTwice) {
  const auto training = make("run", {}, {{"FAKE_STEPS", "100000"}, {"FAKE_FAULT", "rank=1 step=3 action=stall"}});
  training->prepare();
  on_event_ = [&](const Event& event) {
    if (const auto* pages = std::get_if<Pages>(&event); pages != nullptr && !pages->pages.empty() && pages->pages.back().step == 3) {
      training->stop(SIGINT);
      training->stop(SIGINT);
      on_event_ = {};
    }
  };
  const Ended ended = run(*training);
  EXPECT_EQ(ended.outcome.kind, Outcome::Kind::ended_at_once);
  EXPECT_EQ(ended.exit_code, 128 + SIGINT);
}

TEST_F(TrainingTest, TellsOfStallsAndRestarts) {
  const auto training = make("run", {"--max-restarts", "1", "monitor.stall_seconds=0.3"},
                             {{"FAKE_STEPS", "8"},
                              {"FAKE_SAVE", "2"},
                              {"FAKE_FAULT", "rank=1 step=3 action=slow ms=1000 once=1;rank=1 step=5 action=kill once=1"}});
  const Ended ended = run(*training);
  EXPECT_EQ(ended.outcome.kind, Outcome::Kind::complete);
  EXPECT_EQ(ended.last_step, 8);
  ASSERT_TRUE(heard_.stall);
  EXPECT_EQ(heard_.stall->stall.causes, std::vector<int>{1});
  ASSERT_TRUE(heard_.restart);
  EXPECT_EQ(heard_.restart->report.rank, 1);
  EXPECT_EQ(heard_.restart->restart, 1);
  EXPECT_NE(heard_.restart->from.find("step-000004"), std::string::npos) << heard_.restart->from;
  EXPECT_EQ(heard_.ranks.size(), 4u) << "two ranks, twice";
}

TEST_F(TrainingTest, FailureIsExplained) {
  const auto training = make("run", {}, {{"FAKE_FAULT", "rank=1 step=2 action=fail code=4"}});
  const Ended ended = run(*training);
  EXPECT_EQ(ended.outcome.kind, Outcome::Kind::failed);
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_EQ(ended.outcome.report.rank, 1);
  EXPECT_NE(ended.outcome.report.text.find("a test's own error"), std::string::npos) << ended.outcome.report.text;
}

TEST_F(TrainingTest, StopsWhileDataIsTokenised) {
  const fs::path data = folder_.path() / "data.jsonl";
  {
    std::ofstream file(data);
    for (int i = 0; i < 20000; ++i) file << R"({"text":"a line of text that is long enough to be worth a token or two"})" << "\n";
  }
  bool given = false;
  std::ofstream(folder_.path() / "tokenizer.json") << text::train_bpe({.vocab_size = 280}, [&]() -> std::optional<std::string_view> {
    return std::exchange(given, true) ? std::nullopt : std::optional<std::string_view>("a line of text that is long enough");
  });
  const auto training = make("run",
                             {"--data", data.string(), "--tokenizer", (folder_.path() / "tokenizer.json").string(),
                              "data.cache_dir=" + (folder_.path() / "cache").string()},
                             {});
  on_event_ = [&](const Event& event) {
    if (std::get_if<Tokenizing>(&event) != nullptr) training->stop();
  };
  const Ended ended = run(*training);
  EXPECT_EQ(ended.outcome.kind, Outcome::Kind::stopped);
  EXPECT_FALSE(ended.outcome.trained);
  EXPECT_TRUE(heard_.ranks.empty());
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / "cache"))
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
}

}  // namespace
}  // namespace lockstep::job
