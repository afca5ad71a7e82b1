// fork and exec with a process group of its own and a death that follows ours.
#include "front/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/descriptor.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

const char* words_for(int signal) {
  switch (signal) {
    case SIGSEGV: return "segmentation fault: it touched memory that is not its own";
    case SIGABRT: return "aborted: an error nobody caught, or a failed check in a library";
    case SIGBUS: return "bus error: often a full /dev/shm or a file that shrank while it was read";
    case SIGFPE: return "arithmetic error";
    case SIGILL: return "an instruction this processor does not have";
    case SIGKILL: return "killed from outside";
    case SIGTERM: return "asked to end";
    case SIGINT: return "interrupted";
    default: return strsignal(signal);
  }
}

// Only calls that are safe after fork. Reports errno through `report` if exec fails.
[[noreturn]] void become(const Command& command, char* const* arguments, char* const* environment, int log, pid_t parent, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // we were orphaned before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  // What it is given may be our own standard input or output: that is not written over first.
  if (command.input >= 0) ::dup2(command.input, STDIN_FILENO);
  if (command.output >= 0) ::dup2(command.output, STDOUT_FILENO);
  if (log >= 0) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (command.input < 0) ::dup2(nothing, STDIN_FILENO);
    if (command.output < 0) ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    if (nothing > STDERR_FILENO) ::close(nothing);
  }
  if (command.keeps >= 0) ::fcntl(command.keeps, F_SETFD, 0);  // not closed on exec
  ::execve(command.program.c_str(), arguments, environment);
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

std::string in_words(const End& end) {
  if (end.signal == 0) return fmt::format("exited with code {}", end.exit_code);
  const char* name = sigabbrev_np(end.signal);
  return fmt::format("ended by signal {} ({}{}, {})", end.signal, name != nullptr ? "SIG" : "", name != nullptr ? name : "?",
                     words_for(end.signal));
}

Child Child::start(const Command& command) {
  std::vector<std::string> arguments = {command.program.string()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argument_list = pointers(arguments);
  const std::vector<char*> variable_list = pointers(variables);

  base::Descriptor log;
  if (!command.log.empty()) {
    log = base::Descriptor(::open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.open()) throw base::machine_error("launch", "cannot write the log {}: {}.", command.log.string(), std::strerror(errno));
  }
  std::optional<base::Pipe> report = base::make_pipe(O_CLOEXEC);
  if (!report) throw base::machine_error("launch", "cannot make a pipe: {}.", std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(command, argument_list.data(), variable_list.data(), log.number(), parent, report->write.number());
  const int fork_error = errno;
  report->write.close();
  log.close();
  int error = 0;
  if (pid < 0) {
    error = fork_error;
  } else if (::read(report->read.number(), &error, sizeof error) == sizeof error) {
    ::waitpid(pid, nullptr, 0);
  } else {
    error = 0;
  }
  if (error != 0) throw base::machine_error("launch", "cannot start {}: {}.", command.program.string(), std::strerror(error));
  ::setpgid(pid, pid);  // also from here: the group exists before the first signal is sent to it
  return Child(pid);
}

Child::Child(pid_t pid) : pid_(pid), end_descriptor_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), end_descriptor_(std::move(other.end_descriptor_)), end_(std::exchange(other.end_, End{})) {}

Child::~Child() {
  if (pid_ > 0 && !end_) {
    kill_now();
    wait(5);
  }
}

const std::optional<End>& Child::poll() {
  if (end_ || pid_ <= 0) return end_;
  int status = 0;
  const pid_t waited = ::waitpid(pid_, &status, WNOHANG);
  if (waited == pid_ && (WIFEXITED(status) || WIFSIGNALED(status))) {
    end_ = WIFSIGNALED(status) ? End{0, WTERMSIG(status)} : End{WEXITSTATUS(status), 0};
    ::kill(-pid_, SIGKILL);
  }
  return end_;
}

bool Child::dying() const {
  if (!running()) return false;
  const auto stat = base::process_stat(pid_);
  constexpr std::size_t flags = 9 - 3;   // the ninth field, counted from the state
  constexpr std::int64_t exiting = 0x4;  // PF_EXITING of the kernel
  return stat.size() > flags && (base::parse_integer(stat[flags]).value_or(0) & exiting) != 0;
}

void Child::send(int signal) {
  if (running()) ::kill(pid_, signal);
}

void Child::kill_now() {
  if (running()) ::kill(-pid_, SIGKILL);
}

bool Child::wait(double seconds) {
  const std::int64_t start = base::now_ns();
  while (!poll()) {
    if (base::seconds_since(start) > seconds) return false;
    ::usleep(2000);
  }
  return true;
}

}  // namespace lockstep::launch
