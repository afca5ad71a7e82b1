// posix_spawn of our own file.
#include "front/serve/children/spawn.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "front/launch/libtorch.h"

namespace lockstep::serve {
namespace {

std::vector<std::string> environment_of_children() {
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

Spawning::Spawning() {
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

Spawning::~Spawning() {
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
}

pid_t Spawning::start(const std::vector<std::string>& arguments) const {
  const std::string program = launch::own_program().string();
  std::vector<std::string> words = {"lockstep"}, all_variables = environment_of_children();
  all_variables.insert(all_variables.end(), variables.begin(), variables.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &files, &attributes, pointers(words).data(), pointers(all_variables).data());
  if (error != 0) throw base::machine_error("ui", "cannot start {}: {}.", program, std::strerror(error));
  return pid;
}

}  // namespace lockstep::serve
