// What a worker finds in its environment: its place, where ranks meet, and which of the machine's addresses others reach.
#include <fmt/format.h>

#include "front/launch/launch.h"
#include "front/launch/meet/socket.h"

namespace lockstep::launch {
namespace {

// Gloo and NCCL would guess which of a machine's addresses the others can reach; the launchers know one that they do reach.
void name_interface(Environment& environment, const std::string& host) {
  environment["LOCKSTEP_BIND_HOST"] = host;
  const std::string interface = meet::interface_with(host);
  if (!interface.empty() && interface != "lo" && !lookup(environment, "NCCL_SOCKET_IFNAME"))
    environment["NCCL_SOCKET_IFNAME"] = "=" + interface;
}

}  // namespace

Environment worker_environment(const Job& job, const LocalRank& rank) {
  Environment environment = job.environment;
  const auto set = [&](const char* name, const std::string& value) { environment[name] = value; };
  set("RANK", std::to_string(rank.rank));
  set("LOCAL_RANK", std::to_string(rank.local_rank));
  set("WORLD_SIZE", std::to_string(job.world_size));
  set("LOCAL_WORLD_SIZE", std::to_string(job.local_world_size));
  set("MASTER_ADDR", job.master_addr);
  set("MASTER_PORT", std::to_string(job.master_port));
  set("LOCKSTEP_PAGE", journal::page_path(job.id, rank.rank).string());
  set("LOCKSTEP_DEVICE", rank.device);
  set("LD_LIBRARY_PATH", job.library_path);
  set("OMP_NUM_THREADS", std::to_string(job.threads));
  if (!lookup(environment, "CUDA_DEVICE_ORDER")) set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // GPUs count as nvidia-smi counts them
  if (job.visible_devices) set("CUDA_VISIBLE_DEVICES", *job.visible_devices);
  // NCCL refuses two ranks on one GPU of one host; told apart by host, they go through the network layer.
  if (job.shared_gpus) set("NCCL_HOSTID", fmt::format("lockstep-{}-{}", job.id, rank.rank));
  if (!job.foreign) std::erase_if(environment, [](const auto& entry) { return entry.first.starts_with("TORCHELASTIC_"); });
  environment.erase("LOCKSTEP_SECRET");  // the launchers' alone
  set("LOCKSTEP_RUN_KEY", job.run_key);
  set("LOCKSTEP_RESTART", std::to_string(job.restart));
  if (rank.rank == 0 && job.store_socket >= 0) set("LOCKSTEP_STORE_SOCKET", std::to_string(job.store_socket));
  if (!job.identity.empty()) set("LOCKSTEP_IDENTITY", job.identity);
  if (!job.bind_host.empty()) name_interface(environment, job.bind_host);
  return environment;
}

}  // namespace lockstep::launch
