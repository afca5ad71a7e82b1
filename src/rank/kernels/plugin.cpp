// Loads the CUDA plug-in with dlopen, from beside the program.
#include "rank/kernels/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"

namespace lockstep::kernels {

namespace {

std::filesystem::path plugin_path() {
  if (const char* given = std::getenv("LOCKSTEP_CUDA_PLUGIN")) return given;
  // build/bin/lockstep-worker -> build/lib/liblockstep_cuda.so
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / "lib" / "liblockstep_cuda.so";
}

// What CUDA's libraries read once, when they start, and is right for every run; what a person has set stays.
void set_environment() {
  // With this workspace cuBLAS gives the same bits every time. It is what LibTorch gives it on Hopper anyway.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  // `lockstep` watches for stalls and names them; LibTorch's own monitor would end the process without a word about why.
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  // Buffers of recorded collectives lie in memory that grows in place (expandable segments), which NCCL cannot register.
  ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

struct Library {
  void* handle;
  const CudaPlugin* plugin;

  Library() {
    const auto path = plugin_path();
    if (!std::filesystem::exists(path))
      throw base::machine_error(
          "kernels", "the CUDA plug-in is not at {}. Build it with `make build`, or point LOCKSTEP_CUDA_PLUGIN at it.", path.string());
    set_environment();
    // Global, because LibTorch's CUDA part registers itself for the libraries that are already there.
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr)
      throw base::machine_error(
          "kernels",
          "the CUDA plug-in {} does not load: {}. It needs the CUDA build of LibTorch 2.11.0 and its nvidia-* packages on the "
          "library path, and the GPU's driver.",
          path.string(), dlerror());
    const auto entry = reinterpret_cast<const CudaPlugin* (*)()>(dlsym(handle, "lockstep_cuda_plugin"));
    base::check(entry != nullptr, "the CUDA plug-in exports lockstep_cuda_plugin");
    plugin = entry();
    if (plugin->version != kCudaPluginVersion)
      throw base::machine_error("kernels", "the CUDA plug-in {} is of another build (version {}, this program needs {}). Run `make build`.",
                                path.string(), plugin->version, kCudaPluginVersion);
  }
};

const Library& library() {
  static const Library library;  // never closed: LibTorch's CUDA part cannot be unloaded
  return library;
}

}  // namespace

const CudaPlugin& cuda_plugin() { return *library().plugin; }

bool built_with_cuda() { return true; }

}  // namespace lockstep::kernels
