// Three pipes and posix_spawn.
#include "front/serve/children/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "front/launch/libtorch.h"
#include "front/serve/children/spawn.h"

namespace lockstep::serve {
namespace {

base::Pipe new_pipe() {
  if (auto made = base::make_pipe(O_CLOEXEC)) return std::move(*made);
  throw base::machine_error("ui", "cannot make a pipe: {}.", std::strerror(errno));
}

}  // namespace

std::string words_of(const std::string& complaints) {
  const std::string text = base::trim(complaints);
  return text.empty() ? "it ended without a word" : text;
}

Process::Process(const std::vector<std::string>& arguments, std::vector<std::string> variables) {
  base::Pipe input = new_pipe(), output = new_pipe(), errors = new_pipe();
  Spawning spawning;
  spawning.variables = std::move(variables);
  ::posix_spawn_file_actions_adddup2(&spawning.files, input.read.number(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&spawning.files, output.write.number(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&spawning.files, errors.write.number(), STDERR_FILENO);
  pid_ = spawning.start(arguments);
  input_ = std::move(input.write);
  output_ = std::move(output.read);
  errors_ = std::move(errors.read);
  ::fcntl(output_.number(), F_SETFL, O_NONBLOCK);
  ::fcntl(errors_.number(), F_SETFL, O_NONBLOCK);
}

Process::~Process() {
  input_.close();
  if (exit_code_) return;
  ::kill(-pid_, SIGKILL);  // it leads a session of its own
  ::waitpid(pid_, nullptr, 0);
}

void Process::take(int descriptor, std::string& into, bool& open) {
  char bytes[1 << 16];
  const ssize_t got = ::read(descriptor, bytes, sizeof bytes);
  if (got > 0 && into.size() < most_bytes) into.append(bytes, static_cast<std::size_t>(got));
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) open = false;
}

std::optional<std::string> Process::read_line(double timeout_s) {
  const std::int64_t begun = base::now_ns();
  for (;;) {
    if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return line;
    }
    if (!output_open_ && !errors_open_) {
      ended_ = true;
      return std::nullopt;
    }
    const double left = timeout_s - base::seconds_since(begun);
    if (left <= 0) return std::nullopt;
    pollfd waits[2] = {{output_open_ ? output_.number() : -1, POLLIN, 0}, {errors_open_ ? errors_.number() : -1, POLLIN, 0}};
    if (::poll(waits, 2, static_cast<int>(left * 1000) + 1) < 0 && errno != EINTR) return std::nullopt;
    if (waits[0].revents != 0) take(output_.number(), text_, output_open_);
    if (waits[1].revents != 0) take(errors_.number(), complaints_, errors_open_);
  }
}

bool Process::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(input_.number(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

int Process::exit_code() {
  if (!exit_code_) {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return *exit_code_;
}

void Process::interrupt() const { ::kill(pid_, SIGINT); }

std::string output_of(const std::vector<std::string>& arguments, double timeout_s) {
  Process process(arguments);
  process.close_input();
  const std::int64_t begun = base::now_ns();
  std::string text;
  while (const auto line = process.read_line(timeout_s - base::seconds_since(begun))) text += *line + "\n";
  if (!process.ended()) throw base::run_error("ui", "`lockstep {}` took longer than {:g} s and was ended.", arguments.front(), timeout_s);
  if (process.exit_code() != 0) throw base::UserError(base::ExitCode::usage, "ui", words_of(process.complaints()));
  return text;
}

}  // namespace lockstep::serve
