// Shows a run on the terminal: aligned lines (with a live bar) for people, JSON lines with --headless.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "front/job/events.h"
#include "front/launch/place.h"
#include "front/show/tokenizing.h"

namespace lockstep::show {

// The listener of a job::Training; standard output for its course, standard error for failures.
class Display {
 public:
  struct Options {
    bool headless = false;
    bool quiet = false;                       // another rank of this job shows it
    bool steps = true;                        // false: machine 0 shows them
    bool terminal = false;                    // standard output is one
    std::int64_t total_steps = 0;             // 0: not known yet
    std::optional<launch::Place> place = {};  // where another launcher started this rank
  };
  explicit Display(Options options) : options_(std::move(options)) {}

  void hear(const job::Event& event);
  void show_plan(const job::RunPlan& plan, const config::RunConfig& config) const;

 private:
  static void on(const job::WaitingForOwner& event);
  static void on(const job::WaitingForData& event);
  void on(const job::Tokenizing& event);
  void on(const job::DataReady& event);
  void on(const job::Invitation& event);
  void on(const job::Planned& event);
  void on(const job::RankStarted&) {}
  void on(const job::Pages& event);
  void on(const job::MetricsLine& event);
  void on(const job::RankNotice& event);
  void on(const job::Note& event) { say(event.text); }
  void on(const job::Stalled& event);
  void on(const job::MovesAgain& event);
  void on(const job::Stopping& event);
  void on(const job::Restarting& event);
  void on(const job::Ended& event);

  void say(std::string_view line);
  void complain(std::string_view text);  // standard error, whatever the mode
  void print(std::string_view line);
  void show_event(const nlohmann::json& json);
  void explain(const job::Ended& event);
  void draw_bar(std::span<const journal::PageView> pages);
  void clear_bar();  // the cursor stands at the start of a line then

  Options options_;
  TokenizingBar tokenizing_;
  std::optional<double> last_loss_;
  double step_seconds_ = 0;
  double tokens_per_second_ = 0;
  std::string bar_;
};

// One aligned line for a logged step; total 0 means unknown.
std::string step_line(const nlohmann::json& json, std::int64_t total);

}  // namespace lockstep::show
