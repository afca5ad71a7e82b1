// The measurements behind `lockstep bench`: a training step, each kernel, each collective. Read this header first.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "rank/bench/ceilings.h"
#include "rank/bench/link.h"
#include "rank/bench/timing.h"
#include "rank/comm/comm.h"
#include "layout/flops.h"
#include "rank/train/watch/peak_flops.h"
#include "journal/page.h"

namespace lockstep::bench {

// Where results go, line by line as they come; `lockstep` shows them.
using Sink = std::function<void(std::string_view line)>;

// ---- a training step

struct StepRequest {
  config::RunConfig config;  // as resolved for one rank; without data.path tokens are made up
  at::Device device = at::kCPU;
  comm::Place place = {};
  std::shared_ptr<journal::PageWriter> page;
  int warm_up = 5;
  int steps = 10;
  int profile_steps = 0;                 // traced after everything is measured; 0: none
  std::filesystem::path profile_folder;  // where the trace goes
  std::optional<LinkModel> link = {};    // the other ranks are modelled
  std::filesystem::path timeline = {};   // where one step's goes; empty: none is made
  // Seconds of the same step over links that take no time, and what a plan makes of them.
  std::optional<double> baseline = {}, planned = {};
};
struct StepProfile {
  int steps = 0;
  std::filesystem::path trace;  // for Perfetto
  std::string table;            // where a step's time went
};
// One step by the device's clock, as it was measured: CUDA graphs included.
struct StepTimeline {
  struct Kind {
    std::string name;  // of a collective
    int operations = 0, waits = 0, exposed = 0;
    double seconds = 0, exposed_seconds = 0;  // of the operations, where links are modelled; of what the step waited for them
  };
  std::filesystem::path trace;  // for Perfetto
  std::vector<Kind> kinds;
};
struct StepResult {
  std::string model, device, dtype;
  std::string activations;  // what blocks keep for backward
  std::string gradients;    // what micro-batches are summed in
  std::string optimizer;    // its method and what its states are
  std::string data;         // in words; empty: made up
  std::string link;         // what is modelled, in words; empty: nothing
  std::string link_name;    // "nvlink8"
  std::optional<double> baseline, planned;
  int ranks = 1;
  bool cuda_graph = false;  // micro-batches were launched as one
  std::int64_t parameters = 0, trained_parameters = 0, seq_len = 0, batch_size = 0, accumulation = 0;
  int warm_up = 0;
  double tokens_per_step = 0;               // that were trained, on average
  std::vector<double> step_seconds;         // raw, update included
  Spread step, micro_batch, update;         // seconds: a step; one forward and backward alone; the update alone
  std::int64_t peak_memory_bytes = 0;       // most that tensors held at once
  std::int64_t driver_memory_bytes = 0;     // taken on the device as the driver counts, before the model left it
  std::int64_t host_peak_memory_bytes = 0;  // of this process
  layout::Flops flops_per_token;
  std::optional<train::PeakFlops> peak_flops;  // nothing: not known for this device and dtype
  bool fp8 = false;
  Ceilings ceilings;
  std::optional<StepProfile> profile;
  std::optional<StepTimeline> timeline;

  double tokens_per_second() const { return tokens_per_step / step.median; }
  std::optional<double> mfu() const;
};
// A run of these settings from random weights, step by step.
StepResult measure_step(const StepRequest& request);
std::string to_text(const StepResult& result);
std::string to_json(const StepResult& result);

// ---- kernels

struct KernelsRequest {
  config::ModelConfig model;
  at::Device device = at::kCPU;
  std::int64_t batch_size = 0, seq_len = 0;
};
struct KernelResult {
  std::string name, shape;
  Spread seconds;
  double bytes = 0;  // the least that must be read and written; 0: compute is the limit
  double flops = 0;

  double rate() const { return (bytes > 0 ? bytes : flops) / seconds.median; }
  double share_of(const Ceilings& ceilings) const { return rate() / (bytes > 0 ? ceilings.bytes_per_second : ceilings.flops_per_second); }
};
struct KernelsResult {
  std::string model, device, dtype;
  std::int64_t rows = 0;
  Ceilings ceilings;
  std::vector<KernelResult> kernels;
};
KernelsResult measure_kernels(const KernelsRequest& request);
std::string to_text(const KernelsResult& result);
std::string to_json(const KernelsResult& result);

// ---- collectives

struct CommResult {
  std::string operation;
  std::int64_t bytes = 0;  // of the whole buffer
  double seconds = 0;      // of the slowest rank
  int calls = 0;
  int ranks = 1;

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
  double bus_bandwidth() const;  // bytes a second over the slowest link, whatever the number of ranks
};
// Collective. Sizes that memory cannot hold are left out, and the sink is told on rank 0.
void measure_comm(const comm::World& world, const std::vector<std::int64_t>& sizes, bool json, const Sink& sink);
std::string comm_header(const comm::World& world, const std::string& device);
std::string to_text(const CommResult& result);
std::string to_json(const CommResult& result);

}  // namespace lockstep::bench
