// Finds the LibTorch that the worker was built against, so that one build runs wherever that version is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "front/launch/environment.h"

namespace lockstep::launch {

struct Job;

struct LibTorch {
  std::filesystem::path root;                          // holds lib/libtorch_cpu.so
  std::vector<std::filesystem::path> library_folders;  // for LD_LIBRARY_PATH: its own and the NVIDIA wheels' beside it
  std::string version;                                 // "2.11.0+cu130"
  std::string found_by;                                // "LOCKSTEP_LIBTORCH", "lockstep, which it lies beside", ".deps", "python3"
};

constexpr std::string_view torch_version = "2.11.0";

// LOCKSTEP_LIBTORCH, then torch/ or libtorch/ in or beside the folder above the program's (a wheel's, a tarball's), then .deps/ beside or
// above the program, then the torch of python3 on PATH. UserError if there is none or its version is another.
LibTorch find_libtorch(const Environment& environment, const std::filesystem::path& program);

// LD_LIBRARY_PATH for a worker.
std::string library_path(const LibTorch& libtorch, const Environment& environment);

// This program's own file, links resolved, and the worker's: LOCKSTEP_WORKER (for tests), or lockstep-worker beside this program.
std::filesystem::path own_program();
std::filesystem::path find_worker(const Environment& environment, const std::filesystem::path& program);

// The worker beside this program, and the LD_LIBRARY_PATH that it needs.
struct OwnWorker {
  std::filesystem::path program;
  std::string library_path;
};
OwnWorker own_worker(const Environment& environment);
void use_own_worker(Job& job, const Environment& environment);
// For a worker that is no rank of any job.
Environment without_ranks(Environment environment, const OwnWorker& worker);

}  // namespace lockstep::launch
