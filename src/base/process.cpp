// Reads /proc.
#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/file/descriptor.h"
#include "base/text.h"

namespace lockstep::base {

std::string process_file(pid_t pid, std::string_view name) {
  const Descriptor file(::open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = file.open() ? ::read(file.number(), piece, sizeof piece) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

std::vector<std::string> process_stat(pid_t pid, pid_t thread) {
  const std::string text = process_file(pid, thread == 0 ? "stat" : fmt::format("task/{}/stat", thread));
  const std::size_t name_end = text.rfind(')');  // a program's name may hold anything, brackets too
  if (name_end == std::string::npos) return {};
  std::istringstream words(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(fmt::format("/proc/{}/task", pid), error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto thread = parse_integer(entry->path().filename().string())) threads.push_back(static_cast<pid_t>(*thread));
  }
  return threads;
}

namespace {

std::uint64_t switches_of(pid_t pid, pid_t thread) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/status", pid, thread));
  std::uint64_t switches = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.find("ctxt_switches") >= colon) continue;  // both kinds: the thread's own doing, and the scheduler's
    if (const auto count = parse_integer(trim(line.substr(colon + 1)))) switches += static_cast<std::uint64_t>(*count);
  }
  return switches;
}

}  // namespace

std::vector<DeepSleep> deep_sleeps(pid_t pid) {
  std::vector<DeepSleep> sleeps;
  for (const pid_t thread : threads_of(pid)) {
    const auto stat = process_stat(pid, thread);
    if (!stat.empty() && stat[0] == "D") sleeps.push_back({thread, switches_of(pid, thread)});
  }
  return sleeps;
}

std::uint64_t pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

}  // namespace lockstep::base
