// What a step would take on more GPUs: one GPU's measured step, and a stated model of the links between them. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/tables.h"

namespace lockstep::plan {

// What one GPU sends in one direction, as collectives reach it in practice, and what a message costs beside its bytes.
struct Link {
  std::string name;
  double bytes_per_second = 0;
  double latency_s = 0;  // of one of the ring's 2 (N - 1) steps
  std::string basis;     // where the numbers come from
  int blocks = 1;        // channels that NCCL has over it, each a block of the device while it moves bytes
};
std::vector<Link> known_links();
Link link_named(std::string_view name);  // UserError that lists the names there are

// Within a machine, and between machines.
struct Links {
  Link within, between;
  int machine = 8;  // GPUs of one

  const Link& of(const std::vector<int>& ranks) const { return ranks.front() / machine == ranks.back() / machine ? within : between; }
  const Link& of(int gpus) const { return gpus > machine ? between : within; }  // a ring is as fast as its slowest link
  bool same() const { return within.name == between.name; }
};
Links links_named(std::string_view names, int machine);  // "nvlink8", or "nvlink8+ib400"

struct Measured {
  double step_seconds = 0;  // of one GPU, or of a rank whose links take no time
  std::int64_t gradient_bytes = 0;
  std::int64_t late_bytes = 0;  // of them, what only the end of backward completes: the embedding's, where it is trained
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t accumulation = 1;     // micro-batches a step: only the last one's backward hides communication
  bool sharded = false;              // predicted by predict_shards(), where these GPUs cut anything between them
  bool reduces_always = false;       // sharded: every micro-batch's gradients are reduced, not only the last one's
  double update_seconds = 0;         // of the step, the optimizer's; 0 where nobody knows
  bool adapters = false;             // sharded: what is trained is whole on every GPU, and reduced as by replicas
  std::int64_t embedding_bytes = 0;  // sharded: what forward begins with
};

struct Prediction {
  int gpus = 1;
  double communication_s = 0;  // of all buckets
  double exposed_s = 0;        // what the backward does not hide
  double step_s = 0;
  double speed_up = 1;    // tokens a second, against one GPU with the same batch a GPU
  double efficiency = 1;  // speed_up / gpus
};
Prediction predict(const Measured& measured, const Link& link, int gpus);

// tables: of this placement, over so many GPUs as they tell of.
Prediction predict_shards(const Measured& measured, const Links& links, const layout::Tables& tables);
// Either, as the settings ask.
Prediction predict_for(const config::RunConfig& config, const Measured& measured, const Links& links, int gpus);
// What the settings say of a step that was measured: what is exchanged, how much of it late.
Measured measured_of(const config::RunConfig& config);

std::string formula();
std::string shards_formula();
// 1, 2, 4 .. up to `gpus`, and `gpus` itself; those that make so many groups.
std::vector<int> gpu_counts(int gpus, int groups = 1);
std::string to_text(const Measured& measured, const Links& links, const std::vector<Prediction>& predictions);
std::string to_json(const Measured& measured, const Links& links, const std::vector<Prediction>& predictions);

// A measured step as `lockstep train` (summary.json) or `lockstep bench step --json` leaves it.
struct MeasuredRun {
  double step_seconds = 0, update_seconds = 0;
  std::int64_t parameters = 0, accumulation = 1;
  std::string dtype, what;  // what: "qwen2.5-0.5b on NVIDIA H200"
};
MeasuredRun read_measured(std::string_view json, std::string_view path);

}  // namespace lockstep::plan
