// The table of variables, and what is wrong with values.
#include "front/check/variables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::check {
namespace {

constexpr Variable table[] = {
    {"CUDA_VISIBLE_DEVICES", "the GPUs that can be used; --gpus counts among them"},
    {"CUDA_DEVICE_ORDER", "how GPUs are counted; workers use PCI_BUS_ID, as nvidia-smi does, unless it is set"},
    {"CUDA_LAUNCH_BLOCKING", "1 waits for every kernel: to find one that fails; slow"},
    {"CUDA_MODULE_LOADING", "when kernels are loaded; the driver's default is right"},
    {"PYTORCH_CUDA_ALLOC_CONF", "how LibTorch's allocator cuts GPU memory; workers use expandable_segments:True unless it is set"},
    {"PYTORCH_ALLOC_CONF", "the newer name of PYTORCH_CUDA_ALLOC_CONF"},
    {"CUBLAS_WORKSPACE_CONFIG", "cuBLAS's workspace; workers use :4096:8, which gives the same bits every time, unless it is set"},
    {"NVIDIA_VISIBLE_DEVICES", "which GPUs the container was given, when it was started"},
    {"NVIDIA_TF32_OVERRIDE", "0 forbids TF32 in every library, 1 forces it"},
    {"NCCL_DEBUG", "INFO writes into ranks/N.log what NCCL does"},
    {"NCCL_P2P_DISABLE", "1 keeps GPUs from reaching each other's memory: slower, but works where peer access hangs"},
    {"NCCL_P2P_LEVEL", "how far apart GPUs may be to reach each other directly"},
    {"NCCL_SHM_DISABLE", "1 keeps NCCL from shared memory: it then uses sockets within a machine; slow"},
    {"NCCL_IB_DISABLE", "1 keeps NCCL from InfiniBand: it then uses sockets between machines"},
    {"NCCL_SOCKET_IFNAME", "the network interface that NCCL uses; between machines the launcher names it unless it is set"},
    {"NCCL_NVLS_ENABLE", "0 keeps NCCL from summing within NVSwitch"},
    {"NCCL_ALGO", "forces an algorithm; NCCL's own choice is usually better"},
    {"NCCL_PROTO", "forces a protocol; NCCL's own choice is usually better"},
    {"NCCL_*", "a setting of NCCL, handed on to it"},
    {"TORCH_NCCL_*", "a setting of LibTorch's NCCL; its monitor is off, lockstep watches the ranks itself"},
    {"GLOO_SOCKET_IFNAME", "the network interface that Gloo uses between machines"},
    {"GLOO_*", "a setting of Gloo, handed on to it"},
    {"OMP_NUM_THREADS", "threads of a rank on the CPU; cores / ranks unless it is set, or parallel.threads"},
    {"OMP_*", "a setting of OpenMP, handed on to it"},
    {"MKL_NUM_THREADS", "threads of MKL; OMP_NUM_THREADS is what lockstep sets"},
    {"HSA_*", "a setting of AMD's ROCm, which this build does not have: nothing reads it"},
    {"HIP_VISIBLE_DEVICES", "GPUs of ROCm, which this build does not have: nothing reads it"},
    {"ROCR_VISIBLE_DEVICES", "GPUs of ROCm, which this build does not have: nothing reads it"},
    {"RANK", "this process is that rank of another launcher"},
    {"LOCAL_RANK", "and that one of its machine"},
    {"WORLD_SIZE", "of so many"},
    {"LOCAL_WORLD_SIZE", "and so many on this machine"},
    {"MASTER_ADDR", "where ranks of another launcher meet"},
    {"MASTER_PORT", "and at which port"},
    {"SLURM_JOB_ID", "inside a job of SLURM"},
    {"SLURM_PROCID", "started by srun as that rank"},
    {"OMPI_COMM_WORLD_RANK", "started by mpirun as that rank"},
    {"TORCHELASTIC_RUN_ID", "started by torchrun"},
    {"LD_LIBRARY_PATH", "searched by workers after LibTorch's own folders"},
    {"LOCKSTEP_*", "a setting of lockstep: see `lockstep config show` and `lockstep train --help`"},
};

bool is_on(const std::string& value) {
  const std::string small = base::lower(value);
  return small == "1" || small == "true" || small == "yes" || small == "on";
}

// "eth0", "=eth0", "^docker,lo", "eth": as NCCL reads it. The part that names interfaces, and whether one fits.
bool names_an_interface(std::string value, std::span<const std::string> interfaces) {
  if (value.starts_with('^')) return true;  // all but these
  const bool exact = value.starts_with('=');
  if (exact) value.erase(0, 1);
  for (const std::string& wanted : base::split(value, ',')) {
    const std::string name = wanted.substr(0, wanted.find(':'));
    for (const std::string& there : interfaces) {
      if (exact ? there == name : there.starts_with(name)) return true;
    }
  }
  return false;
}

}  // namespace

std::span<const Variable> known_variables() { return table; }

const Variable* find_variable(std::string_view name) {
  for (const Variable& variable : table) {
    const bool beginning = variable.name.ends_with('*');
    if (beginning ? name.starts_with(variable.name.substr(0, variable.name.size() - 1)) : name == variable.name) return &variable;
  }
  return nullptr;
}

std::vector<Finding> judge_variables(const launch::Environment& environment, std::span<const std::string> interfaces) {
  std::vector<Finding> findings;
  const auto value_of = [&](const char* name) { return launch::lookup(environment, name).value_or(""); };
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) {
    if (is_on(value_of(name)))
      findings.push_back(warning("LS-315", fmt::format("{}={} makes NCCL take a slower way", name, value_of(name))));
  }
  if (is_on(value_of("CUDA_LAUNCH_BLOCKING")))
    findings.push_back(warning("LS-315", "CUDA_LAUNCH_BLOCKING=1 waits for every kernel",
                               "unset CUDA_LAUNCH_BLOCKING once the kernel that fails is found"));
  for (const auto& [name, code] : {std::pair("NCCL_SOCKET_IFNAME", "LS-302"), std::pair("GLOO_SOCKET_IFNAME", "LS-307")}) {
    const std::string value = value_of(name);
    if (value.empty() || names_an_interface(value, interfaces)) continue;
    findings.push_back(failed(code, fmt::format("{}={}: no network interface of this machine has that name", name, value),
                              fmt::format("unset it, or name one of {}", fmt::join(interfaces, ", "))));
  }
  const std::string threads = value_of("OMP_NUM_THREADS");
  if (!threads.empty() && base::parse_integer(threads).value_or(0) < 1)
    findings.push_back(
        warning("LS-411", fmt::format("OMP_NUM_THREADS={} is not a number of threads", threads), "unset it, or set a whole number"));
  if (!findings.empty()) return findings;
  const auto count =
      std::count_if(environment.begin(), environment.end(), [](const auto& entry) { return find_variable(entry.first) != nullptr; });
  return {good(count == 0 ? "none is set that matters"
                          : fmt::format("{} set that matter{}; `lockstep info` lists them", count, count == 1 ? "s" : ""))};
}

}  // namespace lockstep::check
