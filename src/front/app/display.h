// Shows a running job: aligned lines (with a live bar on a terminal) for people, JSON lines with --headless.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "front/launch/launch.h"
#include "record/tail.h"

namespace lockstep::app {

class Display : public launch::Observer {
 public:
  struct Options {
    bool headless = false;
    bool quiet = false;            // another rank of this job shows it
    bool steps = true;             // false: machine 0 shows them
    bool terminal = false;         // standard output is one
    std::int64_t total_steps = 0;  // 0: not known yet
  };
  Display(const std::filesystem::path& metrics, Options options);

  void tick(std::span<const record::PageView> pages) override;
  void say(std::string_view line) override;
  // Standard error, whatever the mode: failures.
  void complain(std::string_view text);
  // Removes the bar; the cursor stands at the start of a line.
  void clear_bar();

  std::int64_t last_step() const { return last_step_; }
  std::optional<double> last_loss() const { return last_loss_; }
  const std::string& last_checkpoint() const { return last_checkpoint_; }
  // The ranks have taken up the run, from its beginning or from a checkpoint.
  bool has_started() const { return started_; }
  // The ranks ended because one of them was asked to stop.
  bool was_stopped() const { return was_stopped_; }

 private:
  void show(const std::string& line);
  void show_event(const nlohmann::json& json);
  void print(std::string_view line);
  void show_notices(std::span<const record::PageView> pages);
  void draw_bar(std::span<const record::PageView> pages);

  record::Tail tail_;
  Options options_;
  std::int64_t last_step_ = 0;
  std::optional<double> last_loss_;
  double step_seconds_ = 0;
  double tokens_per_second_ = 0;
  std::string last_checkpoint_;
  std::map<std::uint32_t, std::int64_t> notices_ns_;  // by rank, of the last one shown
  bool started_ = false;
  bool was_stopped_ = false;
  std::string bar_;
};

// One aligned line for a logged step; total 0 means unknown.
std::string step_line(const nlohmann::json& json, std::int64_t total);

}  // namespace lockstep::app
