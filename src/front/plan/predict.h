// What a step would take on more GPUs: one GPU's measured step, and a stated model of the links between them. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/spread/schedule.h"

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

struct Measured {
  double step_seconds = 0;  // of one GPU
  std::int64_t gradient_bytes = 0;
  std::int64_t late_bytes = 0;  // of them, what only the end of backward completes: the embedding's
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t accumulation = 1;  // micro-batches a step: only the last one's backward hides communication
  bool sharded = false;           // predicted by predict_shards()
  bool reduces_always = false;    // sharded: every micro-batch's gradients are reduced, not only the last one's
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

// moved: what a rank receives in a step, as the tables of the placement say.
Prediction predict_shards(const Measured& measured, const Link& link, const layout::Traffic& moved, int gpus);

std::string formula();
std::string shards_formula();
// 1, 2, 4 .. up to `gpus`, and `gpus` itself.
std::vector<int> gpu_counts(int gpus);
std::string to_text(const Measured& measured, const Link& link, const std::vector<Prediction>& predictions);
std::string to_json(const Measured& measured, const Link& link, const std::vector<Prediction>& predictions);

// A measured step as `lockstep train` (summary.json) or `lockstep bench step --json` leaves it.
struct MeasuredRun {
  double step_seconds = 0;
  std::int64_t parameters = 0, accumulation = 1;
  std::string dtype, what;  // what: "qwen2.5-0.5b on NVIDIA H200"
};
MeasuredRun read_measured(std::string_view json, std::string_view path);

}  // namespace lockstep::plan
