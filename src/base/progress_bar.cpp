// Draws over its own line.
#include "base/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::base {
namespace {

constexpr std::int64_t between_ns = 100'000'000;

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool is_json_wanted() {
  const char* wanted = std::getenv("LOCKSTEP_PROGRESS");
  return wanted != nullptr && std::string_view(wanted) == "json";
}

}  // namespace

ProgressBar::ProgressBar() : json_(is_json_wanted()), terminal_(::isatty(STDERR_FILENO) == 1), start_ns_(now_ns()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total, std::string_view more) {
  const std::int64_t now = now_ns();
  if (!(terminal_ || json_) || now - drawn_ns_ < between_ns) return;
  drawn_ns_ = now;
  if (json_) {
    fmt::print("{{\"done\":{},\"total\":{}}}\n", done, total);
    std::fflush(stdout);
    return;
  }
  drawn_ = true;
  constexpr std::size_t width = 24;
  const double share = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 0;
  const auto filled = static_cast<std::size_t>(share * width);
  std::string text = fmt::format("  [{}{}] {:3.0f}%  {}", std::string(filled, '#'), std::string(width - filled, '.'), 100 * share, more);
  if (share > 0.01) text += fmt::format("  ETA {}", human_duration(seconds_since(start_ns_) * (1 - share) / share));
  fmt::print(stderr, "\r\033[K{}", text.substr(0, terminal_width() - 1));
  std::fflush(stderr);
}

}  // namespace lockstep::base
