// Follows a run's metrics.jsonl while its ranks write it, and remembers how far it has come.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "journal/tail.h"

namespace lockstep::job {

// One thread at a time.
class Follower {
 public:
  // What the file holds already is passed over: it is an earlier start's.
  explicit Follower(const std::filesystem::path& metrics);

  // Hears each line that came since the last call, whole and parsed. Lines that are no JSON object are left out.
  using OnLine = std::function<void(const std::string& text, const nlohmann::json& json)>;
  void poll(const OnLine& on_line);

  std::int64_t last_step() const { return last_step_; }
  std::optional<double> last_loss() const { return last_loss_; }
  // The ranks have taken up the run, from its beginning or from a checkpoint.
  bool has_started() const { return started_; }
  // The ranks ended because one of them was asked to stop.
  bool was_stopped() const { return was_stopped_; }

 private:
  void remember(const nlohmann::json& json);

  journal::Tail tail_;
  std::int64_t last_step_ = 0;
  std::optional<double> last_loss_;
  bool started_ = false;
  bool was_stopped_ = false;
};

}  // namespace lockstep::job
