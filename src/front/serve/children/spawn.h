// How the page starts this program again: in a session of its own, with signals as they were, and without the page's secret.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::serve {

// What posix_spawn is told; `files` and `variables` may be added to.
struct Spawning {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  std::vector<std::string> variables = {};  // "NAME=VALUE", beside the page's own
  Spawning();
  ~Spawning();
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;

  // `arguments`: behind `lockstep`. UserError where it cannot be started.
  pid_t start(const std::vector<std::string>& arguments) const;
};

}  // namespace lockstep::serve
