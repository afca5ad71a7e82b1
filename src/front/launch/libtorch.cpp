// Looks for LibTorch in four places, nearest first; python3 is started only when the others have none.
#include "front/launch/libtorch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "front/launch/launch.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

bool has_torch(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "lib" / "libtorch_cpu.so", error);
}

// The torch folder a person may have meant: itself, site-packages, or an environment.
fs::path torch_under(const fs::path& folder) {
  if (has_torch(folder)) return folder;
  if (has_torch(folder / "torch")) return folder / "torch";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "lib", error)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    const fs::path torch = entry.path() / "site-packages" / "torch";
    if (has_torch(torch)) return torch;
  }
  return {};
}

// PREFIX/bin/lockstep of a wheel is site-packages/lockstep/bin/lockstep, with torch beside PREFIX; who unpacked a tarball put it there too,
// or into it.
fs::path torch_beside(const fs::path& program) {
  const fs::path prefix = program.parent_path().parent_path();
  for (const fs::path& folder : {prefix, prefix.parent_path()}) {
    for (const char* name : {"torch", "libtorch"}) {
      if (has_torch(folder / name)) return folder / name;
    }
  }
  return {};
}

// Without importing it: that would take a second or more.
fs::path torch_of_python() {
  const char* command =
      "python3 -c \"import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')\" "
      "2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command, "r"), ::pclose);
  if (!pipe) return {};
  std::array<char, 4096> line{};
  if (std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return {};
  const std::string folder = base::trim(line.data());
  return folder.empty() ? fs::path() : torch_under(folder);
}

// From the wheel's version.py, or the file beside the libraries in the zip that is offered for C++.
std::string version_of(const fs::path& root) {
  std::ifstream wheel(root / "version.py");
  for (std::string line; std::getline(wheel, line);) {
    if (!line.starts_with("__version__")) continue;
    const std::size_t begin = line.find_first_of("'\"");
    const std::size_t end = line.find_last_of("'\"");
    if (begin != std::string::npos && end > begin) return line.substr(begin + 1, end - begin - 1);
  }
  std::ifstream zip(root / "build-version");
  std::string line;
  std::getline(zip, line);
  return base::trim(line);
}

std::vector<fs::path> library_folders(const fs::path& root) {
  std::vector<fs::path> folders = {root / "lib"};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root.parent_path() / "nvidia", error)) {
    if (fs::is_directory(entry.path() / "lib", error)) folders.push_back(entry.path() / "lib");
  }
  std::sort(folders.begin() + 1, folders.end());
  return folders;
}

LibTorch describe(const fs::path& root, std::string found_by) {
  LibTorch found{root, library_folders(root), version_of(root), std::move(found_by)};
  if (found.version.substr(0, found.version.find('+')) != torch_version) {
    throw base::machine_error(
        "launch",
        "LibTorch in {} (found by {}) is version {}; lockstep was built for {}. Install torch=={} there, or point LOCKSTEP_LIBTORCH at a "
        "folder that has it.",
        root.string(), found.found_by, found.version.empty() ? "unknown" : found.version, torch_version, torch_version);
  }
  return found;
}

}  // namespace

LibTorch find_libtorch(const Environment& environment, const fs::path& program) {
  if (const auto asked = lookup(environment, "LOCKSTEP_LIBTORCH")) {
    const fs::path root = torch_under(*asked);
    if (root.empty()) {
      throw base::machine_error(
          "launch", "LOCKSTEP_LIBTORCH={} holds no lib/libtorch_cpu.so. Point it at the torch folder of a Python environment.", *asked);
    }
    return describe(root, "LOCKSTEP_LIBTORCH");
  }
  if (const fs::path root = torch_beside(program); !root.empty()) return describe(root, "lockstep, which it lies beside");
  for (fs::path folder = program.parent_path();; folder = folder.parent_path()) {
    const fs::path root = torch_under(folder / ".deps");
    if (!root.empty()) return describe(root, ".deps");
    if (folder == folder.parent_path()) break;
  }
  const fs::path root = torch_of_python();
  if (!root.empty()) return describe(root, "python3");
  throw base::machine_error(
      "launch",
      "LibTorch {} is not found: not in LOCKSTEP_LIBTORCH (not set), not beside {}, not in a .deps/ there or above, not in the python3 "
      "on PATH. `pip install torch=={}` (or tools/setup.sh in a checkout), or set LOCKSTEP_LIBTORCH.",
      torch_version, program.parent_path().parent_path().string(), torch_version);
}

std::string library_path(const LibTorch& libtorch, const Environment& environment) {
  std::string path;
  for (const auto& folder : libtorch.library_folders) path += folder.string() + ":";
  if (const auto given = lookup(environment, "LD_LIBRARY_PATH")) return path + *given;
  path.pop_back();
  return path;
}

fs::path own_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  base::check(!error, "/proc/self/exe names this program");
  return program;
}

fs::path find_worker(const Environment& environment, const fs::path& program) {
  const auto asked = lookup(environment, "LOCKSTEP_WORKER");
  const fs::path worker = asked ? fs::path(*asked) : program.parent_path() / "lockstep-worker";
  if (::access(worker.c_str(), X_OK) == 0) return fs::absolute(worker);
  throw base::machine_error(
      "launch",
      "{} is missing or cannot be run. It lies beside `lockstep` in a whole build: run `make build`, and copy both programs together.",
      worker.string());
}

OwnWorker own_worker(const Environment& environment) {
  const fs::path program = own_program();
  return {find_worker(environment, program), library_path(find_libtorch(environment, program), environment)};
}

void use_own_worker(Job& job, const Environment& environment) {
  OwnWorker worker = own_worker(environment);
  job.worker = std::move(worker.program);
  job.library_path = std::move(worker.library_path);
}

Environment without_ranks(Environment environment, const OwnWorker& worker) {
  environment["LD_LIBRARY_PATH"] = worker.library_path;
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_PAGE"})
    environment.erase(name);
  return environment;
}

}  // namespace lockstep::launch
