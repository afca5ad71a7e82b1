// What a machine's monitor reads once a second: its GPUs and its ranks' processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "front/launch/devices/nvml.h"
#include "front/launch/launch.h"

namespace lockstep::monitor {

struct RankProcess {
  int rank = 0;
  pid_t pid = 0;
  std::string device = {};  // "cpu", "cuda:0"
};

// A GPU that ranks of this machine are on.
struct UsedGpu {
  int number = 0;  // as nvidia-smi counts
  std::vector<int> ranks;
  std::string name, uuid;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<int> max_clock_mhz;
};

struct GpuNow {
  int number = 0;
  std::vector<int> ranks;
  launch::GpuReading reading;
  std::optional<double> nvlink_sent_per_s, nvlink_received_per_s;
  int others = 0;  // processes on it that are none of this run's
};

struct RankNow {
  int rank = 0;
  std::optional<double> cpu;      // cores
  std::optional<double> starved;  // share of the time in which its main thread waited for a core
  std::optional<std::uint64_t> memory_bytes;
  std::string phase;  // empty: it has no page yet
  std::int64_t step = 0;
};

struct Reading {
  double seconds = 0;  // since the monitor began
  std::vector<GpuNow> gpus;
  std::vector<RankNow> ranks;
};

// Which GPUs of the machine ranks are on. `visible`: CUDA_VISIBLE_DEVICES of the ranks. Empty without a driver that answers.
std::vector<UsedGpu> used_gpus(const launch::Nvml& nvml, const std::vector<RankProcess>& ranks, const std::optional<std::string>& visible);

// Reads processes and GPUs, and turns counters into rates. One thread.
class Reader {
 public:
  // nvml: null where no rank is on a GPU.
  explicit Reader(std::unique_ptr<launch::Nvml> nvml) : nvml_(std::move(nvml)) {}
  const launch::Nvml* nvml() const { return nvml_.get(); }
  Reading read(const std::vector<RankProcess>& ranks, const std::vector<UsedGpu>& gpus);

 private:
  struct Counters {
    pid_t pid = 0;
    std::int64_t at_ns = 0;
    double cpu_s = 0;      // used by all threads
    double starved_s = 0;  // waited for by the main one
  };
  struct Traffic {
    std::int64_t at_ns = 0;
    std::uint64_t sent = 0, received = 0;
  };
  RankNow read_process(const RankProcess& process);
  GpuNow read_gpu(const UsedGpu& gpu, int handle);

  std::unique_ptr<launch::Nvml> nvml_;
  std::vector<std::pair<int, Counters>> processes_;  // by rank
  std::vector<std::pair<int, Traffic>> links_;       // by GPU
  std::int64_t begun_ns_ = 0;
  std::int64_t reads_ = 0;
};

}  // namespace lockstep::monitor
