// `lockstep watch`: runs on a live screen, from their folders alone; a line a change where there is no terminal.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/signal_flag.h"
#include "config/run_config.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/job/ask.h"
#include "front/runs/live_run.h"
#include "front/show/terminal.h"
#include "front/show/watch_screen.h"

namespace lockstep::app {
namespace {

struct WatchRequest {
  std::vector<std::string> names;
  std::string output = config::RunConfig().output;
  double every_s = 1;
  int rank = 0;
  bool once = false;
};

void describe(CLI::App& app, WatchRequest& request) {
  app.add_option("RUN", request.names, "runs, by folder or by name under --output; none: all that are being trained, or the newest");
  app.add_option("--output", request.output, "where runs lie")->capture_default_str();
  app.add_option("--interval", request.every_s, "seconds between two looks")->capture_default_str()->check(CLI::Range(0.1, 3600.0));
  app.add_option("--rank", request.rank, "whose log is shown")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_flag("--once", request.once, "one screen, then end");
}

using Runs = std::vector<std::unique_ptr<runs::LiveRun>>;

Runs open_runs(const WatchRequest& request) {
  Runs live;
  for (const std::string& name : request.names) live.push_back(std::make_unique<runs::LiveRun>(job::find_run(name, request.output)));
  if (!live.empty()) return live;
  const auto folders = runs::find_runs(request.output);
  if (folders.empty())
    throw base::usage_error("watch", "there is no run under {}. Start one with `lockstep train`, or say where runs lie with --output.",
                            request.output);
  for (const auto& folder : folders) {
    if (runs::state_of(folder, "") == runs::State::training) live.push_back(std::make_unique<runs::LiveRun>(folder));
  }
  if (live.empty()) live.push_back(std::make_unique<runs::LiveRun>(folders.front()));
  return live;
}

// Runs that have begun since, where none was named.
void add_new_runs(Runs& live, const WatchRequest& request) {
  if (!request.names.empty()) return;
  for (const auto& folder : runs::find_runs(request.output)) {
    const bool known = std::any_of(live.begin(), live.end(), [&](const auto& one) { return one->view().folder == folder; });
    if (!known && runs::state_of(folder, "") == runs::State::training) live.push_back(std::make_unique<runs::LiveRun>(folder));
  }
}

// One that understands where to write: an editor's or a script's does not.
bool is_screen() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && kind != nullptr && *kind != 0 && std::string_view(kind) != "dumb";
}

// The whole terminal, as it was again at the end.
class Terminal {
 public:
  Terminal() {
    keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    std::fputs("\033[?1049h\033[?25l", stdout);
  }
  ~Terminal() {
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Terminal(const Terminal&) = delete;

  static show::Screen screen(int log_rank) {
    winsize size{};
    show::Screen screen{.color = std::getenv("NO_COLOR") == nullptr, .utf8 = show::shows_utf8(), .log_rank = log_rank};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) screen.width = size.ws_col, screen.height = size.ws_row;
    return screen;
  }
  // Line by line over what stands there: nothing flickers.
  static void show(const std::string& text) {
    std::string out = "\033[H";
    for (const char c : text) out += c == '\n' ? std::string("\033[K\r\n") : std::string(1, c);
    out += "\033[K\033[J";
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }
  // True where someone pressed q.
  bool wait(double seconds) const {
    pollfd keyboard{.fd = keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    if (::poll(&keyboard, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
    char key = 0;
    return ::read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 'Q');
  }

 private:
  termios before_{};
  bool keys_ = false;
};

std::vector<const runs::LiveRun*> pointers(const Runs& live) {
  std::vector<const runs::LiveRun*> all;
  for (const auto& one : live) all.push_back(one.get());
  return all;
}

bool any_trains(const Runs& live) {
  return std::any_of(live.begin(), live.end(), [](const auto& one) { return one->view().state == runs::State::training; });
}

void poll_all(const Runs& live) {
  for (const auto& one : live) one->poll();
}

constexpr double look_for_new_s = 5;

// Someone wants it to end: Ctrl-C, or whoever started it.
struct Interrupts {
  base::SignalFlag keyboard{SIGINT, base::Calls::are_interrupted}, asked{SIGTERM, base::Calls::are_interrupted};
  bool raised() const { return keyboard.raised() || asked.raised(); }
};

void poll_all(Runs& live, const WatchRequest& request, std::int64_t& looked_ns) {
  if (base::seconds_since(looked_ns) > look_for_new_s) {
    add_new_runs(live, request);
    looked_ns = base::now_ns();
  }
  poll_all(live);
}

void watch_terminal(Runs& live, const WatchRequest& request, const Interrupts& interrupt) {
  const Terminal terminal;
  const base::SignalFlag resized(SIGWINCH, base::Calls::are_interrupted);  // ends the wait: the next screen has the new size
  std::int64_t looked_ns = base::now_ns();
  for (bool leaves = false; !leaves && !interrupt.raised();) {
    poll_all(live, request, looked_ns);
    Terminal::show(show::draw(pointers(live), Terminal::screen(request.rank)));
    if (!any_trains(live)) return;
    leaves = terminal.wait(request.every_s);
  }
}

void watch_plainly(Runs& live, const WatchRequest& request, const Interrupts& interrupt) {
  std::vector<std::string> said;
  std::int64_t looked_ns = base::now_ns();
  while (!interrupt.raised()) {
    poll_all(live, request, looked_ns);
    said.resize(live.size());
    for (std::size_t i = 0; i < live.size(); ++i) {
      const std::string line = show::progress_line(live[i]->view());
      if (line != said[i]) std::puts(line.c_str());
      said[i] = line;
    }
    std::fflush(stdout);
    if (!any_trains(live)) return;
    ::poll(nullptr, 0, static_cast<int>(request.every_s * 1000));
  }
}

}  // namespace

int run_watch_verb(std::span<const std::string> args) {
  WatchRequest request;
  CLI::App app{
      "Shows runs while they train: progress with the time that is left, loss, where each rank's time goes, GPUs, and the end of a log. "
      "Reads run folders and writes nothing, so it can come and go, over ssh too. q or Ctrl-C ends it, not the runs.",
      "lockstep watch"};
  describe(app, request);
  if (!read_flags(app, args, "watch")) return 0;
  Runs live = open_runs(request);
  const bool terminal = is_screen();
  if (request.once) {
    poll_all(live);
    show::Screen screen{.width = 120, .height = 60, .utf8 = show::shows_utf8(), .log_rank = request.rank};
    if (terminal) screen = Terminal::screen(request.rank);
    std::puts(show::draw(pointers(live), screen).c_str());
    return 0;
  }
  const Interrupts interrupt;
  if (!terminal) {
    watch_plainly(live, request, interrupt);
    return 0;
  }
  watch_terminal(live, request, interrupt);
  std::puts(show::draw(pointers(live), Terminal::screen(request.rank)).c_str());
  return 0;
}

}  // namespace lockstep::app
