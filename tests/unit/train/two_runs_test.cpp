// Two runs in one process, one after the other: the second trains as if it were alone, whatever the first was and however it ended.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/signal_flag.h"
#include "rank/train/train_step.h"
#include "support/ranks/run_ranks.h"
#include "support/temporary_folder.h"
#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

struct Wanted {
  config::DType dtype = config::DType::f32;
  bool deterministic = false;
  std::int64_t seed = 1;
  std::int64_t steps = 6;
  std::int64_t stop_after = 0;  // SIGTERM comes in this step
};

struct Seen {
  std::vector<double> numbers;  // of every step: loss and norm; then all weights
  std::int64_t steps = 0;
  bool was_deterministic = false, stopped = false;
  std::string log;
};

class TermAfter final : public AfterUpdate {
 public:
  explicit TermAfter(std::int64_t step) : step_(step) {}
  void follow(const StepOutcome& outcome) override {
    if (outcome.step == step_) ::raise(SIGTERM);
  }

 private:
  std::int64_t step_;
};

void read_metrics(const std::filesystem::path& file, Seen& seen) {
  std::ifstream lines(file);
  for (std::string text; std::getline(lines, text);) {
    const auto line = base::parse_json(text);
    const std::string event = line.value("event", "");
    if (event == "model") seen.was_deterministic = line.at("deterministic").get<bool>();
    if (event == "finished") seen.stopped = line.at("reason") == "stopped";
    if (!line.contains("loss")) continue;
    seen.numbers.push_back(line.at("loss").get<double>());
    seen.numbers.push_back(line.at("grad_norm").get<double>());
    ++seen.steps;
  }
}

// As lockstep-worker does it.
Seen trained(const Wanted& wanted, const std::string& name) {
  const support::TemporaryFolder folder;
  RunRequest request{
      .config = tiny(), .folder = folder.path(), .device = test::device(), .page = std::make_shared<journal::PageWriter>("", 0)};
  config::RunConfig& config = request.config;
  config.model.dtype = wanted.dtype;
  config.trainer.deterministic = wanted.deterministic;
  config.trainer.seed = wanted.seed;
  config.trainer.batch_size = batch_size;
  config.trainer.max_steps = wanted.steps;
  config.trainer.log_interval = 1;
  config.trainer.learning_rate = 1e-2;
  Seen seen;
  ::testing::internal::CaptureStderr();
  {
    const base::LogPrefix prefix(name);
    const base::SignalFlag terminate(SIGTERM, base::Calls::go_on);
    request.asked_to_stop = [&] { return terminate.raised(); };
    const auto run = build_run(request);
    if (wanted.stop_after > 0) run->after_update.push_back(std::make_unique<TermAfter>(wanted.stop_after));
    run->note("trains");
    train(*run);
    read_metrics(run->folder.metrics(), seen);
    for (const auto& unit : run->replica.units) {
      const at::Tensor weights = unit->exact().to(at::kCPU, at::kDouble).contiguous();
      seen.numbers.insert(seen.numbers.end(), weights.const_data_ptr<double>(), weights.const_data_ptr<double>() + weights.numel());
    }
  }
  base::log_info("nobody trains");
  seen.log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(seen.log.find(name + " info: nobody trains"), std::string::npos) << seen.log;
  return seen;
}

struct Pair {
  Wanted first, second;
};

class TwoRuns : public ::testing::TestWithParam<Pair> {};

TEST_P(TwoRuns, TheSecondTrainsAsIfItWereAlone) {
  const auto& [first, second] = GetParam();
  // In a process of its own, which no other test has used.
  const auto alone = testing::run_ranks(1, config::Backend::automatic, [&](comm::World&) { return trained(second, "alone").numbers; });
  const bool before = at::globalContext().deterministicAlgorithms();

  const Seen one = trained(first, "rank 7");
  EXPECT_EQ(one.was_deterministic, first.deterministic);
  EXPECT_EQ(one.stopped, first.stop_after > 0);
  EXPECT_EQ(one.steps, first.stop_after > 0 ? first.stop_after + 1 : first.steps);  // one more step tells all ranks
  EXPECT_NE(one.log.find("rank 7 info: trains"), std::string::npos) << one.log;

  const Seen two = trained(second, "rank 0");
  EXPECT_EQ(two.was_deterministic, second.deterministic);
  EXPECT_FALSE(two.stopped);
  EXPECT_EQ(two.steps, second.steps);
  EXPECT_NE(two.log.find("rank 0 info: trains"), std::string::npos) << two.log;
  EXPECT_EQ(two.log.find("rank 7"), std::string::npos) << two.log;
  if (test::device().is_cpu() || second.deterministic) {
    EXPECT_TRUE(two.numbers == alone.at(0)) << "losses, norms and weights, to the last bit";
  }
  EXPECT_EQ(at::globalContext().deterministicAlgorithms(), before);
}

constexpr auto f32 = config::DType::f32, bf16 = config::DType::bf16;
INSTANTIATE_TEST_SUITE_P(Kinds, TwoRuns,
                         ::testing::Values(Pair{{.dtype = bf16, .deterministic = true, .seed = 5, .stop_after = 2}, {.dtype = f32}},
                                           Pair{{.dtype = f32, .seed = 9}, {.dtype = bf16, .deterministic = true, .seed = 2}}));

}  // namespace
}  // namespace lockstep::train
