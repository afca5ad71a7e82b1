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

struct Library {
  void* handle;
  const CudaPlugin* plugin;

  Library() {
    const auto path = plugin_path();
    if (!std::filesystem::exists(path))
      throw base::machine_error(
          "kernels", "the CUDA plug-in is not at {}. Build it with `make build`, or point LOCKSTEP_CUDA_PLUGIN at it.", path.string());
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
