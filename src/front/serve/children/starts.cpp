// Processes in sessions of their own; who one was is told by its number and when it began.
#include "front/serve/children/starts.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "front/serve/children/spawn.h"
#include "journal/tail.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int printed_lines = 60;
constexpr std::uintmax_t least_room = 1 << 20;  // for a log and a line of what went wrong

// Field 22 of proc(5); 0 where there is no such process, or none but its remains.
std::int64_t begun_ticks(pid_t pid) {
  const std::vector<std::string> stat = base::process_stat(pid);
  if (stat.size() < 20 || stat[0] == "Z" || stat[0] == "X") return 0;
  return base::parse_integer(stat[19]).value_or(0);
}

}  // namespace

Starts::Starts(const Folders& folders) : folders_(folders) {
  std::error_code ignored;  // whoever only looks needs none
  fs::create_directories(folders.own(), ignored);
}

fs::path Starts::record(const std::string& name) const { return folders_.own() / (name + ".start"); }
fs::path Starts::printed(const std::string& name) const { return folders_.own() / (name + ".log"); }

void Starts::start(const std::string& name, const std::vector<std::string>& arguments) {
  expect_room();
  base::real_files().create_directories(folders_.own());
  Spawning spawning;
  const std::string log = printed(name).string();
  ::posix_spawn_file_actions_addopen(&spawning.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&spawning.files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(&spawning.files, STDOUT_FILENO, STDERR_FILENO);
  const pid_t pid = spawning.start(arguments);
  {
    base::Lock lock(mutex_);
    children_.push_back(pid);
  }
  try {
    base::write_text_atomically(base::real_files(), record(name),
                                Json{{"pid", pid}, {"begun", begun_ticks(pid)}, {"arguments", arguments}}.dump() + "\n");
  } catch (...) {
    ::kill(-pid, SIGKILL);  // it has only begun; one that nobody remembers could not be stopped from here
    throw;
  }
}

void Starts::expect_room() const {
  std::error_code error;
  const fs::space_info disk = fs::space(folders_.output(), error);
  if (error || disk.available >= least_room) return;
  throw base::machine_error("ui",
                            "the disk that holds {} is full ({} left): a run has no room for its log and checkpoints. Free some, for "
                            "example by deleting runs, and try again.",
                            folders_.output().string(), base::human_bytes(disk.available));
}

std::optional<Starts::Start> Starts::of(const std::string& name) {
  std::error_code error;
  if (!fs::is_regular_file(record(name), error)) return std::nullopt;
  const auto json = base::json_if_any(base::read_text(record(name)));
  if (!json || !json->is_object()) return std::nullopt;
  const auto pid = json->value("pid", 0);
  const auto begun = json->value("begun", std::int64_t{0});
  Start start{.lives = pid > 0 && begun > 0 && begun_ticks(pid) == begun, .pid = pid};
  start.printed = base::join(journal::last_lines(printed(name), printed_lines), "\n");
  return start;
}

bool Starts::stop(const std::string& name) {
  const auto start = of(name);
  return start && start->lives && ::kill(start->pid, SIGINT) == 0;
}

std::vector<std::string> Starts::names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folders_.own(), error)) {
    if (entry.path().extension() == ".start") names.push_back(entry.path().stem().string());
  }
  return names;
}

void Starts::forget(const std::string& name) {
  std::error_code error;
  fs::remove(record(name), error);
  fs::remove(printed(name), error);
}

void Starts::reap() {
  base::Lock lock(mutex_);
  std::erase_if(children_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
}

}  // namespace lockstep::serve
