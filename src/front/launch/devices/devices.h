// Which devices there are and which rank gets which, found without LibTorch or a CUDA context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "front/launch/environment.h"

namespace lockstep::launch {

struct Gpu {
  int index = 0;  // as nvidia-smi counts
  std::string name = {};
  std::string uuid = {};  // "GPU-..."
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
};

// A GPU that CUDA_VISIBLE_DEVICES lets us use. Its place in the list is its id for --gpus.
struct VisibleGpu {
  Gpu gpu;
  std::string token;  // how CUDA_VISIBLE_DEVICES names it
};

struct Machine {
  std::vector<Gpu> installed;
  std::vector<VisibleGpu> visible;
  int cores = 1;        // this process may use
  std::string problem;  // why the GPUs that seem to be there cannot be asked; empty if all is well
};

// GPUs through the driver's management library. `problem` as in Machine.
std::vector<Gpu> installed_gpus(std::string& problem);
int usable_cores();
Machine look_at_machine(const Environment& environment);
// What the visible GPU with the least has, in all: every rank must fit. 0: there is none.
std::int64_t smallest_gpu_bytes(const Machine& machine);

// CUDA_VISIBLE_DEVICES as CUDA reads it: ids or UUID prefixes, up to the first that names no GPU; not set means all.
std::vector<VisibleGpu> visible_gpus(std::span<const Gpu> installed, const std::optional<std::string>& variable);

struct DeviceWish {
  config::DeviceKind kind = config::DeviceKind::automatic;
  config::Backend backend = config::Backend::automatic;
  std::vector<std::int64_t> gpu_ids = {};  // empty: all that are visible
  std::int64_t num_gpus = 0;               // 0: all
  std::int64_t ranks = 0;                  // 0: one a device
  bool one_rank = false;                   // trainer.distributed.enabled is off, or LOCKSTEP_SINGLE_GPU
  bool oversubscribe = false;              // several ranks may share a GPU
  bool bound_by_launcher = false;          // another launcher may have shown each rank only its own GPU
};

struct RankDevice {
  std::string device;  // what the worker is told: "cpu" or "cuda:K", K among the chosen GPUs
  std::string model;   // "NVIDIA H200", "CPU"
  int gpu = -1;        // its number among the visible ones
};

struct Selection {
  std::vector<RankDevice> ranks;
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES of the workers: the chosen GPUs and no other; "" on CPU ranks
  bool shared = false;                         // several ranks on one GPU
  std::vector<std::string> notes;              // for people, one line each
};

// UserError that lists the GPUs there are if the wish cannot be met.
Selection select_devices(const DeviceWish& wish, const Machine& machine);

// "0: NVIDIA H200, 139.8 GiB" a line.
std::string list_gpus(std::span<const VisibleGpu> gpus);

}  // namespace lockstep::launch
