// One function an event, and the bar.
#include "front/show/display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/error.h"
#include "base/text.h"
#include "front/launch/launch.h"
#include "front/show/plan_text.h"
#include "text/terminal.h"

namespace lockstep::show {
namespace {

using Json = nlohmann::json;
using launch::Outcome;

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

double number(const Json& json, const char* name, double otherwise = 0) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string text_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string eta(std::int64_t step, std::int64_t total, double step_seconds) {
  if (total <= step || step_seconds <= 0) return "";
  return base::human_duration(static_cast<double>(total - step) * step_seconds);
}

int terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string step_line(const Json& json, std::int64_t total) {
  const auto step = static_cast<std::int64_t>(number(json, "step"));
  const double seconds = number(json, "step_seconds");
  const std::string of = total > 0 ? std::to_string(total) : "?";
  const auto loss = json.find("loss");
  const std::string loss_text = loss != json.end() && loss->is_number() ? fmt::format("{:.4f}", loss->get<double>()) : "not finite";
  const std::string remaining = eta(step, total, seconds);
  return fmt::format("step {:>{}}/{}  loss {:>8}  lr {:.2e}  {:>7} tok/s  {:>7.3f} s/step{}", step, of.size(), of, loss_text,
                     number(json, "learning_rate"), base::human_count(number(json, "tokens_per_second")), seconds,
                     remaining.empty() ? "" : "  ETA " + remaining);
}

void Display::hear(const job::Event& event) {
  std::visit([this](const auto& one) { on(one); }, event);
}

void Display::on(const job::WaitingForOwner& event) { std::fputs(fmt::format("[launch] {}\n", event.text).c_str(), stderr); }

void Display::on(const job::WaitingForData& event) { TokenizingBar::waiting(event.path); }

void Display::on(const job::Tokenizing& event) { tokenizing_.progress(event.path, event.share); }

void Display::on(const job::DataReady& event) {
  tokenizing_.clear();
  if (!options_.steps) return;
  const corpus::Counts& counts = event.part.prepared.cache->counts();
  if (options_.headless) {
    std::puts(nlohmann::ordered_json{{"event", "data"},
                                     {"path", event.part.path},
                                     {"cached", !event.part.prepared.made},
                                     {"counts", nlohmann::ordered_json(base::parse_json(counts.to_json()))}}
                  .dump()
                  .c_str());
    return;
  }
  std::puts(describe(event.part).c_str());
  for (const std::string& example : counts.examples) std::puts(("  skipped: " + example).c_str());
}

void Display::on(const job::Invitation& event) {
  say(fmt::format("start the other machine{} with{}\n  {}", event.several ? "s" : "",
                  event.several ? " (--node-rank 2, 3, ... on the next)" : "", event.command));
}

void Display::on(const job::Planned& event) {
  if (options_.steps) show_plan(event.plan, event.config);
}

void Display::show_plan(const job::RunPlan& plan, const config::RunConfig& config) const {
  write_out(options_.headless ? to_json(plan, config) + "\n" : to_text(plan, config));
}

void Display::on(const job::Stalled& event) { say(launch::stalled_words(event.stall, event.abort_seconds)); }

void Display::on(const job::MovesAgain&) { say(launch::moves_again_words); }

void Display::on(const job::Stopping& event) { say(launch::stopping_words(event.asked_elsewhere)); }

void Display::on(const job::Restarting& event) {
  complain(event.report.text);
  say(fmt::format("restart {} of {} from {}.", event.restart, event.allowed, event.from));
}

void Display::print(std::string_view line) {
  clear_bar();
  write_out(fmt::format("{}\n", line));
}

void Display::say(std::string_view line) {
  if (options_.quiet) return;
  print(options_.headless ? Json{{"event", "launcher"}, {"text", line}}.dump() : fmt::format("[launch] {}", line));
}

void Display::complain(std::string_view text) {
  clear_bar();
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void Display::on(const job::Pages& event) {
  if (options_.steps && options_.terminal && !options_.headless) draw_bar(event.pages);
}

void Display::on(const job::RankNotice& event) {
  if (options_.steps) say(fmt::format("rank {}: {}", event.rank, event.text));
}

void Display::on(const job::MetricsLine& event) {
  const Json& json = event.json;
  if (json.contains("loss")) {
    if (json["loss"].is_number()) last_loss_ = json["loss"].get<double>();
    step_seconds_ = number(json, "step_seconds");
    tokens_per_second_ = number(json, "tokens_per_second");
  }
  if (const auto total = static_cast<std::int64_t>(number(json, "total_steps")); total > 0) options_.total_steps = total;
  if (options_.headless) return print(event.text);
  if (json.contains("loss")) return print(step_line(json, options_.total_steps));
  if (json.contains("eval_loss")) {
    const std::string loss = json["eval_loss"].is_number() ? fmt::format("{:.4f}", number(json, "eval_loss")) : "not finite";
    return print(fmt::format("step {}  evaluation loss {}  perplexity {:.2f}  accuracy {:.1f}%  over {} tokens",
                             static_cast<std::int64_t>(number(json, "step")), loss, number(json, "eval_perplexity"),
                             100 * number(json, "eval_accuracy"), base::human_count(number(json, "eval_tokens"))));
  }
  show_event(json);
}

void Display::show_event(const Json& json) {
  const std::string event = text_of(json, "event");
  const auto step = static_cast<std::int64_t>(number(json, "step"));
  if (event == "model" && json.contains("gradients")) print(fmt::format("  {:<15}{}", "gradients", text_of(json, "gradients")));
  if (event == "note") print(text_of(json, "text"));
  if (event == "checkpoint") print(fmt::format("step {}  checkpoint {}", step, text_of(json, "path")));
  if (event == "skipped") print(fmt::format("step {}  skipped: {}", step, text_of(json, "reason")));
  if (event == "wish" && json.value("done", false)) print(fmt::format("step {}  done as asked: {}", step, text_of(json, "wish")));
  if (event == "wish" && !json.value("done", false))
    print(fmt::format("step {}  not done, though asked: {}: {}", step, text_of(json, "wish"), text_of(json, "reason")));
  if (event == "sample") {
    const std::string written = text_of(json, "text"), prompt = text_of(json, "prompt");
    const bool answers = !written.starts_with(prompt);  // a chat: it is not the prompt's continuation
    print(answers ? fmt::format("step {}  sample, asked: {}", step, text::harmless(prompt)) : fmt::format("step {}  sample:", step));
    for (const auto& line : base::split(written, '\n')) print("    " + text::harmless(line));
  }
}

void Display::draw_bar(std::span<const journal::PageView> pages) {
  if (pages.empty()) return;
  const journal::PageView& page = pages.front();
  std::string text;
  const std::int64_t total = options_.total_steps;
  if (page.step == 0 || total == 0) {
    text = fmt::format("  {} ...", journal::describe(page.phase));
  } else {
    constexpr int width = 24;
    const int filled = static_cast<int>(std::clamp<std::int64_t>(page.step * width / total, 0, width));
    text = fmt::format("  [{}{}] {}/{}", std::string(static_cast<std::size_t>(filled), '#'),
                       std::string(static_cast<std::size_t>(width - filled), '.'), page.step, total);
    if (last_loss_) text += fmt::format("  loss {:.4f}", *last_loss_);
    if (tokens_per_second_ > 0) text += fmt::format("  {} tok/s", base::human_count(tokens_per_second_));
    if (const std::string remaining = eta(page.step, total, step_seconds_); !remaining.empty()) text += "  ETA " + remaining;
    if (may_take_long(page.phase)) text += fmt::format("  {}", journal::describe(page.phase));
  }
  text = text.substr(0, static_cast<std::size_t>(std::max(10, terminal_width() - 1)));
  if (text == bar_) return;
  write_out("\r\033[K" + text);
  bar_ = text;
}

void Display::clear_bar() {
  if (bar_.empty()) return;
  write_out("\r\033[K");
  bar_.clear();
}

void Display::on(const job::Ended& event) {
  clear_bar();
  const std::string folder = event.folder.string();
  nlohmann::ordered_json last = {{"event", "end"}, {"run", folder}, {"seconds", event.seconds}};
  std::string words;
  switch (event.outcome.kind) {
    case Outcome::Kind::complete:
      last["status"] = "complete";
      words = !options_.steps
                  ? fmt::format("finished.\nrun folder: {}\n", folder)
                  : fmt::format("finished {} steps in {}{}.\nrun folder: {}\n", event.last_step, base::human_duration(event.seconds),
                                event.last_loss ? fmt::format(", loss {:.4f}", *event.last_loss) : "", folder);
      break;
    case Outcome::Kind::stopped:
      last["status"] = "stopped";
      last["resume"] = event.resume;
      words = event.outcome.trained ? fmt::format("stopped; everything is saved. Resume with\n  {}\nrun folder: {}\n", event.resume, folder)
                                    : fmt::format("stopped before the first step; there was nothing to save.\nrun folder: {}\n", folder);
      break;
    case Outcome::Kind::ended_at_once:
      last["status"] = "ended";
      words =
          fmt::format("ended at once; steps since the last checkpoint are lost. Resume with\n  {}\nrun folder: {}\n", event.resume, folder);
      break;
    case Outcome::Kind::failed:
      last["status"] = "failed";
      last["error"] = event.outcome.report.headline;
      if (event.outcome.report.rank) last["rank"] = *event.outcome.report.rank;
      explain(event);
      break;
  }
  last["exit_code"] = event.exit_code;
  if (!options_.quiet) write_out(options_.headless ? last.dump() + "\n" : words);
}

// Of several launchers on a machine, the failed rank's and the first one's speak at length.
void Display::explain(const job::Ended& event) {
  const launch::Report& report = event.outcome.report;
  const bool mine = !options_.place || options_.place->local_rank == 0 || report.rank == options_.place->rank;
  if (!mine) return complain("[launch] " + report.headline + ".\n");
  // What was refused before its first step would be refused again.
  const bool goes_on = event.has_checkpoint && (event.last_step > 0 || event.exit_code >= static_cast<int>(base::ExitCode::run));
  complain(report.text + (goes_on ? fmt::format("  Resume with: {}\n", event.resume) : "") +
           fmt::format("  Run folder: {}\n", event.folder.string()));
}

}  // namespace lockstep::show
