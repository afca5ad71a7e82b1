// A run as its folder tells it: how far it is, whether someone trains it, what its loss did.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::runs {

enum class State {
  training,  // a process holds the folder
  complete,
  stopped,  // by a person, with a checkpoint
  failed,   // its launcher said so, or nobody did and nobody is there
};
std::string_view name_of(State state);

struct Point {
  double x = 0, y = 0;
};

struct RunView {
  std::string name;
  std::filesystem::path folder;
  State state = State::failed;
  std::int64_t step = 0, total_steps = 0;  // 0: not known
  std::optional<double> loss, eval_loss, best_eval_loss;
  double learning_rate = 0, step_seconds = 0;
  std::optional<double> mfu;
  std::string counted = "tokens";
  double per_second = 0;
  std::string started, last_time;  // UTC, of its first and last line; empty: none
  double seconds = 0;              // between the two
  std::vector<Point> losses;       // by step, all of them
  std::string trouble;             // why it failed, in a sentence; empty where it has not

  double remaining_seconds() const;  // 0: not known, or none
};

// Takes in a run's metrics.jsonl line by line; lines of steps are not parsed but for the last, so a million of them take a second.
class MetricsScan {
 public:
  void begin_anew() { *this = {}; }
  void line(std::string_view text);
  // Everything but name, folder and state.
  void fill(RunView& view) const;
  // The last line of a step, as it is in the file; empty: none.
  const std::string& last_step() const { return last_step_; }
  // What the last start said of its end: "complete", "stopped"; empty while it has not.
  const std::string& end_reason() const { return end_reason_; }

 private:
  void event(std::string_view text);
  std::string last_step_, end_reason_, first_time_, last_time_;
  std::int64_t total_steps_ = 0;
  std::optional<double> eval_loss_, best_eval_loss_;
  std::vector<Point> losses_;
};

// The folder's state, whatever its metrics say. end_reason: as MetricsScan tells it.
State state_of(const std::filesystem::path& folder, std::string_view end_reason);

// Why a run failed, in a sentence of its launcher's or, where that was killed, of ours.
std::string trouble_of(const std::filesystem::path& folder, State state);

// A number of a JSON line by its name, without parsing the line. Nothing where it is null or not there.
std::optional<double> number_in(std::string_view line, std::string_view name);
// "2026-01-31T12:00:00Z" in seconds since 1970; nothing for another text.
std::optional<double> seconds_of(std::string_view time);

RunView read_run(const std::filesystem::path& folder);
// The run folders under `output`, the newest first.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& output);

}  // namespace lockstep::runs
