// posix_spawn into a session of its own; who it was is told by its process number and when it began.
#include "front/serve/starts.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "front/launch/libtorch.h"
#include "journal/tail.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int printed_lines = 60;

// Field 22 of proc(5); 0 where there is no such process, or none but its remains.
std::int64_t begun_ticks(pid_t pid) {
  const std::vector<std::string> stat = base::process_stat(pid);
  if (stat.size() < 20 || stat[0] == "Z" || stat[0] == "X") return 0;
  return base::parse_integer(stat[19]).value_or(0);
}

// What posix_spawn is told, given back at the end.
struct Spawning {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Spawning() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Spawning() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
};

// The page's own secret is none of a run's business.
std::vector<std::string> environment_of_a_run() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("LOCKSTEP_UI_")) variables.emplace_back(*variable);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

Starts::Starts(const Folders& folders) : folders_(folders) { base::real_files().create_directories(folders.own()); }

fs::path Starts::record(const std::string& name) const { return folders_.own() / (name + ".start"); }
fs::path Starts::printed(const std::string& name) const { return folders_.own() / (name + ".log"); }

void Starts::start(const std::string& name, const std::vector<std::string>& arguments) {
  Spawning spawning;
  const std::string log = printed(name).string();
  ::posix_spawn_file_actions_addopen(&spawning.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&spawning.files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(&spawning.files, STDOUT_FILENO, STDERR_FILENO);
  const std::string program = launch::own_program().string();
  std::vector<std::string> words = {"lockstep"}, variables = environment_of_a_run();
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_t pid = 0;
  if (const int error =
          ::posix_spawn(&pid, program.c_str(), &spawning.files, &spawning.attributes, pointers(words).data(), pointers(variables).data());
      error != 0)
    throw base::machine_error("ui", "cannot start {}: {}.", program, std::strerror(error));
  {
    base::Lock lock(mutex_);
    children_.push_back(pid);
  }
  base::write_text_atomically(base::real_files(), record(name),
                              Json{{"pid", pid}, {"begun", begun_ticks(pid)}, {"arguments", arguments}}.dump() + "\n");
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
