// Follows metrics.jsonl and the pages; prints what is new.
#include "front/app/display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "text/terminal.h"

namespace lockstep::app {
namespace {

using Json = nlohmann::json;

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

Display::Display(const std::filesystem::path& metrics, Options options) : tail_(metrics), options_(options) {
  tail_.skip_to_end();  // an earlier start's lines
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

void Display::tick(std::span<const record::PageView> pages) {
  if (options_.quiet || !options_.steps) return;
  auto update = tail_.poll();
  auto first = update.lines.begin();
  // A resumed start's file begins with the lines it builds on; they have been shown before.
  for (auto line = update.lines.begin(); line != update.lines.end(); ++line) {
    if (line->starts_with(R"({"event":"started")")) first = line;
  }
  for (auto line = first; line != update.lines.end(); ++line) show(*line);
  show_notices(pages);
  if (options_.terminal && !options_.headless) draw_bar(pages);
}

// What a rank could not say in metrics.jsonl.
void Display::show_notices(std::span<const record::PageView> pages) {
  for (const record::PageView& page : pages) {
    auto& shown = notices_ns_[page.rank];
    if (page.notice_ns <= shown) continue;
    shown = page.notice_ns;
    say(fmt::format("rank {}: {}", page.rank, page.notice));
  }
}

void Display::show(const std::string& line) {
  const Json json = base::json_if_any(line).value_or(nullptr);
  if (!json.is_object()) return;
  if (json.contains("loss")) {
    last_step_ = static_cast<std::int64_t>(number(json, "step"));
    if (json["loss"].is_number()) last_loss_ = json["loss"].get<double>();
    step_seconds_ = number(json, "step_seconds");
    tokens_per_second_ = number(json, "tokens_per_second");
  }
  if (const auto total = static_cast<std::int64_t>(number(json, "total_steps")); total > 0) options_.total_steps = total;
  if (text_of(json, "event") == "started") started_ = true;
  if (text_of(json, "event") == "finished") was_stopped_ = text_of(json, "reason") == "stopped";
  if (text_of(json, "event") == "checkpoint") last_checkpoint_ = text_of(json, "path");
  if (options_.headless) return print(line);
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
  if (event == "sample") {
    const std::string written = text_of(json, "text"), prompt = text_of(json, "prompt");
    const bool answers = !written.starts_with(prompt);  // a chat: it is not the prompt's continuation
    print(answers ? fmt::format("step {}  sample, asked: {}", step, text::harmless(prompt)) : fmt::format("step {}  sample:", step));
    for (const auto& line : base::split(written, '\n')) print("    " + text::harmless(line));
  }
}

void Display::draw_bar(std::span<const record::PageView> pages) {
  if (pages.empty()) return;
  const record::PageView& page = pages.front();
  std::string text;
  const std::int64_t total = options_.total_steps;
  if (page.step == 0 || total == 0) {
    text = fmt::format("  {} ...", record::describe(page.phase));
  } else {
    constexpr int width = 24;
    const int filled = static_cast<int>(std::clamp<std::int64_t>(page.step * width / total, 0, width));
    text = fmt::format("  [{}{}] {}/{}", std::string(static_cast<std::size_t>(filled), '#'),
                       std::string(static_cast<std::size_t>(width - filled), '.'), page.step, total);
    if (last_loss_) text += fmt::format("  loss {:.4f}", *last_loss_);
    if (tokens_per_second_ > 0) text += fmt::format("  {} tok/s", base::human_count(tokens_per_second_));
    if (const std::string remaining = eta(page.step, total, step_seconds_); !remaining.empty()) text += "  ETA " + remaining;
    if (may_take_long(page.phase)) text += fmt::format("  {}", record::describe(page.phase));
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

}  // namespace lockstep::app
