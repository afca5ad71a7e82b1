// What a run's metrics.jsonl holds, as columns of numbers and a list of events, read on as it grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "journal/tail.h"

namespace lockstep::serve {

// One number a step was written with; NaN where a line has none.
inline constexpr const char* columns[] = {"step",
                                          "loss",
                                          "grad_norm",
                                          "learning_rate",
                                          "tokens",
                                          "tokens_per_second",
                                          "step_seconds",
                                          "data_seconds",
                                          "mfu",
                                          "communication_seconds",
                                          "seconds_since_start"};
inline constexpr std::size_t column_count = std::size(columns);

// What the list of runs shows of one.
struct RunNumbers {
  std::int64_t last_step = 0, total_steps = 0, parameters = 0;
  std::optional<double> last_loss, tokens_per_second, step_seconds, eval_loss;
  std::string first_time, last_time;  // UTC, of lines
  std::string finished;               // "complete", "stopped": as rank 0 said at its end
  std::string data, backend;
  std::vector<double> sparkline;  // of losses, at most 48
};

// Any thread.
class RunLog {
 public:
  explicit RunLog(const std::filesystem::path& metrics) : tail_(metrics) {}

  // Reads what is new. True where the file was replaced: what was there before holds no longer.
  bool refresh();
  RunNumbers numbers();
  // Steps from..to in at most `points` of each column: means of neighbors, and of the loss the least and the most too, so that no spike
  // is lost; gaps stay gaps. With evaluations and all events.
  nlohmann::ordered_json series(std::size_t points, double from, double to);

 private:
  void take(const std::string& line) LOCKSTEP_REQUIRES(mutex_);
  void take_step(const nlohmann::ordered_json& json) LOCKSTEP_REQUIRES(mutex_);
  void forget() LOCKSTEP_REQUIRES(mutex_);

  base::Mutex mutex_;
  journal::Tail tail_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<double> values_[column_count] LOCKSTEP_GUARDED_BY(mutex_);
  nlohmann::ordered_json last_ LOCKSTEP_GUARDED_BY(mutex_);  // the last step, as it was written
  nlohmann::ordered_json evaluations_ LOCKSTEP_GUARDED_BY(mutex_) = nlohmann::ordered_json::array();
  nlohmann::ordered_json events_ LOCKSTEP_GUARDED_BY(mutex_) = nlohmann::ordered_json::array();
  RunNumbers numbers_ LOCKSTEP_GUARDED_BY(mutex_);
  double first_seconds_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

// The logs of runs that were asked for lately.
class RunLogs {
 public:
  std::shared_ptr<RunLog> of(const std::filesystem::path& run);

 private:
  static constexpr std::size_t kept = 64;
  struct Kept {
    std::shared_ptr<RunLog> log;
    std::uint64_t used = 0;
  };
  base::Mutex mutex_;
  std::map<std::string, Kept> logs_ LOCKSTEP_GUARDED_BY(mutex_);
  std::uint64_t uses_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::serve
