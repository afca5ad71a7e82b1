// Lines that know their width, and what stands in them.
#include "front/show/watch_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "front/runs/curves.h"
#include "text/terminal.h"

namespace lockstep::show {
namespace {

using journal::Part;
using OrderedJson = nlohmann::ordered_json;
using runs::LiveRun;
using runs::State;

constexpr int least_bar = 6, most_bar = 24;            // of how far a run is
constexpr int least_time_bar = 8, most_time_bar = 32;  // of a rank's step
constexpr int least_log_lines = 3, most_log_lines = 12;
constexpr std::size_t most_trouble_lines = 4;
constexpr std::size_t run_lines = 7;  // of one among several: four, a rank, the legend and a line between

struct PartLook {
  char letter;
  const char* color;  // of ECMA-48: what "\033[" and "m" stand around
};
PartLook look_of(Part part) {
  switch (part) {
    case Part::data: return {'d', "33"};
    case Part::forward: return {'f', "32"};
    case Part::backward: return {'b', "34"};
    case Part::communication: return {'c', "31"};
    case Part::optimizer: return {'o', "35"};
    case Part::checkpoint: return {'s', "36"};
    case Part::other: return {'.', "90"};
  }
  return {'.', "90"};
}

// Columns are characters, not bytes, and color takes none.
class Line {
 public:
  Line(const Screen& screen) : left_(screen.width), color_(screen.color) {}
  Line& add(std::string_view text, std::string_view color = "") {
    std::string fits;
    for (const char c : text) {
      const bool starts = (static_cast<unsigned char>(c) & 0xc0) != 0x80;
      if (starts && left_ == 0) break;
      if (starts) --left_;
      fits += c;
    }
    text_ += color.empty() || !color_ || fits.empty() ? fits : fmt::format("\033[{}m{}\033[0m", color, fits);
    return *this;
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
  int left_;
  bool color_;
};

double reading_of(const OrderedJson& json, const char* name, double otherwise = -1) {
  if (!json.is_object()) return otherwise;
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string title_color(State state) { return state == State::training ? "1;32" : state == State::failed ? "1;31" : "1"; }

std::string bar(const runs::RunView& view, int width) {
  const int filled = view.total_steps > 0 ? static_cast<int>(std::clamp<std::int64_t>(view.step * width / view.total_steps, 0, width)) : 0;
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(width - filled), '.'));
}

// In a narrow window the bar gives way to the numbers.
std::string progress(const runs::RunView& view, int width) {
  std::string text = fmt::format(" {}/{}", view.step, view.total_steps > 0 ? std::to_string(view.total_steps) : "?");
  if (view.total_steps > 0)
    text += fmt::format("  {:.0f}%", 100.0 * static_cast<double>(view.step) / static_cast<double>(view.total_steps));
  if (view.remaining_seconds() > 0) text += "  ETA " + base::human_duration(view.remaining_seconds());
  return bar(view, std::clamp(width - static_cast<int>(text.size()) - 2, least_bar, most_bar)) + text;
}

// Words of a sentence in lines of this width, so many at most.
std::vector<std::string> wrapped(const std::string& text, int width, std::size_t most) {
  std::vector<std::string> lines;
  if (text.empty()) return lines;
  for (const std::string& word : base::split(text, ' ')) {
    const bool fits = !lines.empty() && static_cast<int>(lines.back().size() + 1 + word.size()) <= width;
    if (fits) {
      lines.back() += " " + word;
    } else {
      if (lines.size() == most) break;
      lines.push_back(word);
    }
  }
  return lines;
}

std::string numbers(const runs::RunView& view) {
  std::string text = fmt::format("loss {}  lr {:.2e}", view.loss ? fmt::format("{:.4f}", *view.loss) : "-", view.learning_rate);
  if (view.eval_loss) text += fmt::format("  evaluation {:.4f} (best {:.4f})", *view.eval_loss, *view.best_eval_loss);
  text += fmt::format("  {} {}/s  {:.3f} s/step", base::human_count(view.per_second), view.counted == "tokens" ? "tok" : view.counted,
                      view.step_seconds);
  if (view.mfu) text += fmt::format("  MFU {:.1f}%", 100 * *view.mfu);
  return text;
}

// What is known of the GPU that a rank is on.
std::string gpu_words(const LiveRun& live, std::size_t rank) {
  for (const auto& [file, machine] : live.machines()) {
    if (!machine.machine.is_object() || !machine.machine.contains("gpus") || !machine.last.is_object()) continue;
    for (const OrderedJson& gpu : machine.machine["gpus"]) {
      const OrderedJson ranks = gpu.value("ranks", OrderedJson::array());
      if (std::none_of(ranks.begin(), ranks.end(), [&](const OrderedJson& one) { return one == rank; })) continue;
      for (const OrderedJson& now : machine.last.value("gpus", OrderedJson::array())) {
        if (reading_of(now, "gpu") != reading_of(gpu, "gpu")) continue;
        std::string text = fmt::format("GPU {:.0f}", reading_of(gpu, "gpu"));
        if (const double share = reading_of(now, "utilization"); share >= 0) text += fmt::format(" {:>3.0f}%", 100 * share);
        if (const double bytes = reading_of(now, "memory_bytes"); bytes >= 0)
          text += "  " + base::human_bytes(static_cast<std::uint64_t>(bytes));
        if (const double watts = reading_of(now, "power_watts"); watts >= 0) text += fmt::format("  {:.0f} W", watts);
        if (const double heat = reading_of(now, "temperature"); heat >= 0) text += fmt::format("  {:.0f} C", heat);
        if (const double clock = reading_of(now, "clock_mhz"); clock >= 0) text += fmt::format("  {:.0f} MHz", clock);
        return text;
      }
    }
  }
  return "";
}

std::string process_words(const LiveRun& live, std::size_t rank) {
  for (const auto& [file, machine] : live.machines()) {
    if (!machine.last.is_object()) continue;
    for (const OrderedJson& now : machine.last.value("ranks", OrderedJson::array())) {
      if (reading_of(now, "rank") != static_cast<double>(rank) || reading_of(now, "cpu") < 0) continue;
      return fmt::format("CPU {:.0f}%  {}", 100 * reading_of(now, "cpu"),
                         base::human_bytes(static_cast<std::uint64_t>(reading_of(now, "memory_bytes", 0))));
    }
  }
  return "";
}

std::string phase_of(const LiveRun& live, std::size_t rank) {
  for (const journal::PageView& page : live.pages()) {
    if (page.rank == rank) return std::string(journal::name_of(page.phase));
  }
  return "";
}

std::string rank_line(const LiveRun& live, std::size_t rank, double longest, const Screen& screen) {
  const journal::PartSeconds& seconds = live.ranks()[rank];
  Line line(screen);
  line.add(fmt::format("rank {:<3} ", rank));
  constexpr int beside = 20;  // the name before, the seconds behind
  const int bar_columns = std::clamp(screen.width - beside, least_time_bar, most_time_bar);
  double so_far = 0;
  int drawn = 0;
  for (const Part part : journal::all_parts) {
    so_far += journal::of(seconds, part);
    const int until = longest > 0 ? static_cast<int>(std::lround(so_far / longest * bar_columns)) : 0;
    const PartLook look = look_of(part);
    line.add(std::string(static_cast<std::size_t>(std::max(0, until - drawn)), look.letter), look.color);
    drawn = std::max(drawn, until);
  }
  line.add(std::string(static_cast<std::size_t>(std::max(0, bar_columns - drawn)), ' '));
  const std::string device = gpu_words(live, rank);
  line.add(fmt::format("  {:>7.3f} s  {:<12}  {}", journal::total(seconds), phase_of(live, rank),
                       device.empty() ? process_words(live, rank) : device));
  return std::move(line).text();
}

// Only parts that someone spends time in.
std::string legend(const LiveRun& live, const Screen& screen) {
  Line line(screen);
  line.add("        ");
  for (const Part part : journal::all_parts) {
    double most = 0;
    for (const auto& rank : live.ranks()) most = std::max(most, journal::of(rank, part) / std::max(1e-9, journal::total(rank)));
    if (most < 0.005) continue;
    line.add(std::string(1, look_of(part).letter), look_of(part).color).add(fmt::format(" {}  ", journal::name_of(part)));
  }
  return std::move(line).text();
}

std::string straggler_words(const LiveRun& live) {
  if (!live.straggler() || live.view().state != State::training) return "";
  const journal::Straggler& found = *live.straggler();
  for (const auto& [file, machine] : live.machines()) {
    if (machine.straggler.is_object() && reading_of(machine.straggler, "rank") == found.rank) return machine.straggler.value("text", "");
  }
  return fmt::format("rank {} holds the others up by {:.0f} ms a step ({:.0f}%), in {}", found.rank, 1000 * found.seconds,
                     100 * found.share, journal::describe(found.part));
}

void add_run(std::vector<std::string>& lines, const LiveRun& live, const Screen& screen, std::size_t most_ranks) {
  const runs::RunView& view = live.view();
  const auto line = [&](std::string_view text, std::string_view color = "") {
    lines.push_back(std::move(Line(screen).add(text, color)).text());
  };
  lines.push_back(std::move(Line(screen)
                                .add(view.name, "1")
                                .add("  ")
                                .add(runs::name_of(view.state), title_color(view.state))
                                .add("  " + base::human_duration(view.seconds)))
                      .text());
  for (const std::string& words : wrapped(text::harmless(view.trouble), screen.width, most_trouble_lines)) line(words, "31");
  line(progress(view, screen.width));
  line(numbers(view));
  const auto columns = static_cast<std::size_t>(std::clamp(screen.width - 26, 10, 100));
  if (const auto values = runs::outline(view.losses, columns); values.size() > 1) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    line(fmt::format("loss {}  {:.3f} .. {:.3f}", sparkline(values, screen.utf8), *high, *low));
  }
  double longest = 0;
  for (const auto& rank : live.ranks()) longest = std::max(longest, journal::total(rank));
  for (std::size_t rank = 0; rank < std::min(most_ranks, live.ranks().size()); ++rank)
    lines.push_back(rank_line(live, rank, longest, screen));
  if (live.ranks().size() > most_ranks) line(fmt::format("        and {} more ranks", live.ranks().size() - most_ranks));
  if (!live.ranks().empty()) lines.push_back(legend(live, screen));
  if (const std::string words = straggler_words(live); !words.empty()) line(words, "33");
}

// More runs than there is room for: a line each, and how many are left out.
std::string draw_list(std::span<const LiveRun* const> live, const Screen& screen, std::size_t room) {
  std::vector<std::string> lines;
  for (const LiveRun* one : live) {
    if (lines.size() + 1 >= room && live.size() > room) {
      lines.push_back(std::move(Line(screen).add(fmt::format("and {} more runs", live.size() - lines.size()), "90")).text());
      break;
    }
    const runs::RunView& view = one->view();
    lines.push_back(
        std::move(Line(screen).add(view.name, title_color(view.state)).add(progress_line(view).substr(view.name.size()))).text());
  }
  return base::join(lines, "\n");
}

}  // namespace

std::string sparkline(std::span<const double> values, bool utf8) {
  static constexpr const char* drawn[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* typed[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const std::span<const char* const> blocks = utf8 ? drawn : typed;
  if (values.empty()) return "";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::string text;
  for (const double value : values) {
    const double share = *high > *low ? (value - *low) / (*high - *low) : 0;
    text += std::isfinite(value) ? blocks[static_cast<std::size_t>(std::clamp(static_cast<int>(share * 8), 0, 7))] : "?";
  }
  return text;
}

std::string progress_line(const runs::RunView& view) {
  std::string text =
      fmt::format("{}  {}  step {}/{}  loss {}  {} {}/s", view.name, runs::name_of(view.state), view.step,
                  view.total_steps > 0 ? std::to_string(view.total_steps) : "?", view.loss ? fmt::format("{:.4f}", *view.loss) : "-",
                  base::human_count(view.per_second), view.counted == "tokens" ? "tok" : view.counted);
  if (view.remaining_seconds() > 0) text += "  ETA " + base::human_duration(view.remaining_seconds());
  if (!view.trouble.empty()) text += "  " + text::harmless(view.trouble);
  return text;
}

std::string draw(std::span<const LiveRun* const> live, const Screen& screen) {
  std::vector<std::string> lines;
  const auto room = static_cast<std::size_t>(std::max(1, screen.height));
  // Ranks share what is left when every run has its four lines, its legend and a line between.
  const std::size_t fixed = live.size() * run_lines;
  if (live.size() > 1 && fixed > room) return draw_list(live, screen, room);
  const std::size_t ranks_each = std::max<std::size_t>(1, room > fixed ? (room - fixed) / std::max<std::size_t>(1, live.size()) : 1);
  for (const LiveRun* one : live) {
    if (!lines.empty()) lines.emplace_back();
    add_run(lines, *one, screen, live.size() == 1 ? std::max<std::size_t>(ranks_each, 4) : ranks_each);
  }
  const std::size_t left = room > lines.size() + 1 ? room - lines.size() - 1 : 0;
  if (live.size() == 1 && left >= least_log_lines) {
    const int count = std::min<int>(most_log_lines, static_cast<int>(left));
    const auto log = live.front()->log(screen.log_rank, count - 1);
    if (!log.empty()) lines.push_back(std::move(Line(screen).add(fmt::format("---- ranks/{}.log", screen.log_rank), "90")).text());
    for (const std::string& one : log) lines.push_back(std::move(Line(screen).add(text::harmless(one))).text());
  }
  if (lines.size() > room) lines.resize(room);
  return base::join(lines, "\n");
}

}  // namespace lockstep::show
