// Finds the LibTorch that the worker was built against, so that one build runs wherever that version is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "front/launch/environment.h"

namespace lockstep::launch {

struct LibTorch {
  std::filesystem::path root;                          // holds lib/libtorch_cpu.so
  std::vector<std::filesystem::path> library_folders;  // for LD_LIBRARY_PATH: its own and the NVIDIA wheels' beside it
  std::string version;                                 // "2.11.0+cu130"
  std::string found_by;                                // "LOCKSTEP_LIBTORCH", ".deps", "python3"
};

constexpr std::string_view torch_version = "2.11.0";

// LOCKSTEP_LIBTORCH, then .deps/ beside or above the program, then the torch of python3 on PATH. UserError if there is none or its
// version is another.
LibTorch find_libtorch(const Environment& environment, const std::filesystem::path& program);

// LD_LIBRARY_PATH for a worker.
std::string library_path(const LibTorch& libtorch, const Environment& environment);

// This program's own file, links resolved, and the worker's: LOCKSTEP_WORKER (for tests), or lockstep-worker beside this program.
std::filesystem::path own_program();
std::filesystem::path find_worker(const Environment& environment, const std::filesystem::path& program);

}  // namespace lockstep::launch
