// posix_spawn, pipes for standard input and output, and a file without a name for standard error: nobody has to read that one in time.
#include "embed/child.h"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace lockstep::embed {
namespace {

constexpr int cannot_start = 127;

std::string chosen(std::string program) {
  if (!program.empty()) return program;
  const char* asked = std::getenv("LOCKSTEP_PROGRAM");
  return asked != nullptr ? asked : "lockstep";
}

// What posix_spawn is told, and gives back.
struct Plan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  Plan(int in, int out, int errors) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
  }
  ~Plan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  Plan(const Plan&) = delete;
};

}  // namespace

Child::Child(std::string program, std::vector<std::string> arguments) : errors_(::memfd_create("lockstep-errors", MFD_CLOEXEC)) {
  program = chosen(std::move(program));
  arguments.insert(arguments.begin(), program);
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  auto input = base::make_pipe(O_CLOEXEC), output = base::make_pipe(O_CLOEXEC);
  int failed = input && output && errors_.open() ? 0 : errno;
  if (failed == 0) {
    const Plan plan(input->read.number(), output->write.number(), errors_.number());
    failed = ::posix_spawnp(&pid_, program.c_str(), &plan.actions, &plan.attributes, words.data(), environ);
    in_ = std::move(input->write);
    out_ = std::move(output->read);
  }
  if (failed == 0) return;
  pid_ = -1;
  code_ = cannot_start;
  ended_ = true;
  why_not_ =
      fmt::format("{} cannot be started: {}. Install lockstep, put it on PATH, or set LOCKSTEP_PROGRAM.", program, std::strerror(failed));
}

Child::~Child() {
  if (code_) return;
  send(SIGTERM);
  wait();
}

bool Child::has_bytes(double timeout_s) const {
  pollfd file = {out_.number(), POLLIN, 0};
  constexpr double longest_ms = 1e9;
  const int wait_ms = timeout_s < 0 ? -1 : static_cast<int>(std::min(1e3 * timeout_s, longest_ms));
  int ready = 0;
  while ((ready = ::poll(&file, 1, wait_ms)) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

std::optional<std::string> Child::line(double timeout_s) {
  for (;;) {
    if (const std::size_t end = rest_.find('\n'); end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    if (ended_ || !has_bytes(timeout_s)) return std::nullopt;
    std::array<char, 1 << 16> bytes;
    const ssize_t got = ::read(out_.number(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      ended_ = true;
      return rest_.empty() ? std::nullopt : std::optional(std::exchange(rest_, {}));
    }
    rest_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

void Child::send(int number) const {
  if (!code_) ::kill(pid_, number);
}

int Child::wait() {
  while (!ended_) line(-1);
  if (code_) return *code_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) return *(code_ = cannot_start);  // someone else has waited for it
  }
  return *(code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

std::string Child::errors() {
  std::string text = why_not_;
  std::array<char, 1 << 14> bytes;
  for (off_t at = 0; errors_.open();) {
    const ssize_t got = ::pread(errors_.number(), bytes.data(), bytes.size(), at);
    if (got <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(got));
    at += got;
  }
  return text;
}

}  // namespace lockstep::embed
