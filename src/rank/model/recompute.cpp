// Counts what blocks keep and what making it again costs, and looks for the cheapest mix that fits.
#include "rank/model/recompute.h"

#include <algorithm>
#include <limits>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/text.h"
#include "rank/model/dims.h"
#include "rank/model/head.h"

namespace lockstep::model {
namespace {

// What a device multiplies while it moves one byte, in floating-point operations: large bf16 matmuls on an H200 run at 680 TFLOP/s, kernels
// that only read and write at 4.2 TB/s. Other GPUs are near: what counts is the order of magnitude.
constexpr double kFlopsPerByte = 160;
// Attention's forward against matmuls: 250 TFLOP/s with heads of 64, 490 with heads of 128.
constexpr double kAttentionSpeed = 0.5;

}  // namespace

ActivationBytes activation_bytes(const config::ModelConfig& config, std::int64_t element_size) {
  const Dims dims(config);
  ActivationBytes bytes{};
  bytes.input = element_size * dims.hidden + 4;
  bytes.matmuls = element_size * (dims.q_width() + dims.hidden + 2 * dims.intermediate) + 4 * dims.heads + 4;
  bytes.qkv = element_size * dims.qkv_width();
  bytes.cheap = element_size * (2 * dims.hidden + dims.intermediate + (dims.qk_norm ? dims.q_width() + dims.kv_width() : 0));
  // The embedding's output, a norm, a branch, the stream's gradient and SwiGLU; attention's backward, which takes most where records are
  // packed: dq in rows as wide as qkv, with its sums in f32, and f32 sums of a key and a value gradient for every query head.
  const std::int64_t attention = 3 * dims.qkv_width() + 4 * dims.q_width() + 2 * dims.kv_width();
  bytes.working = element_size * (4 * dims.hidden + dims.intermediate + (dims.qk_norm ? dims.q_width() + dims.kv_width() : 0) + attention);
  return bytes;
}

std::int64_t ActivationBytes::kept(Keep keep) const {
  switch (keep) {
    case Keep::all: return input + matmuls + qkv + cheap;
    case Keep::matmuls: return input + matmuls + qkv;
    case Keep::without_qkv: return input + matmuls;
    case Keep::input: return input;
  }
  throw base::Bug("a policy that has no size");
}

// The place of norms and SwiGLU is counted as working memory: blocks that keep them need it as well, for gradients.
std::int64_t ActivationBytes::shared(Keep keep) const { return keep == Keep::input ? matmuls + qkv : keep == Keep::without_qkv ? qkv : 0; }

double recompute_cost(const config::ModelConfig& config, std::int64_t time, std::int64_t element_size, Keep keep) {
  const Dims d(config);
  const std::int64_t rotation = 2 * (d.q_width() + d.kv_width());  // read and written
  const std::int64_t qkv_flops = 2 * d.hidden * d.qkv_width();
  const auto cost = [&](std::int64_t moved, std::int64_t flops) { return double(element_size * moved) + double(flops) / kFlopsPerByte; };
  // Both norms are read and written; the pass that makes SwiGLU's gradient writes its output too.
  const std::int64_t cheap = 4 * d.hidden + d.intermediate;
  switch (keep) {
    case Keep::all: return 0;
    case Keep::matmuls: return cost(cheap + (d.qk_norm ? rotation : 0), 0);
    case Keep::without_qkv: return cost(cheap + rotation, qkv_flops);
    case Keep::input: {
      // The first norm twice, because the second takes its place; the sum before the second; SwiGLU in a pass of its own.
      const std::int64_t moved = 8 * d.hidden + rotation + 3 * d.intermediate;
      const std::int64_t flops = qkv_flops + 2 * d.hidden * (d.q_width() + 2 * d.intermediate);
      const std::int64_t attention = 2 * time * d.q_width();  // two products, half of each behind the causal mask
      return cost(moved, flops + std::int64_t(double(attention) / kAttentionSpeed));
    }
  }
  throw base::Bug("a policy that has no cost");
}

std::int64_t dense_buffer_bytes(const config::ModelConfig& config, std::int64_t element_size) {
  if (!config.load_in_4bit && !config.load_in_8bit) return 0;
  const Dims dims(config);
  return element_size * dims.hidden * std::max({dims.qkv_width(), dims.q_width(), 2 * dims.intermediate});
}

std::int64_t evaluation_bytes(const config::ModelConfig& config, std::int64_t rows, std::int64_t element_size) {
  const ActivationBytes bytes = activation_bytes(config, element_size);
  // The head chose its chunk when more was free: the reserve may not hold it.
  const std::int64_t logits = std::min(kMostLogitsBytes, rows * Dims(config).vocab * element_size);
  return activation_reserve_bytes + dense_buffer_bytes(config, element_size) + logits + rows * bytes.kept(Keep::all);
}

std::vector<Keep> choose_keep(const config::ModelConfig& config, const MicroBatch& batch, std::int64_t element_size,
                              std::int64_t available_bytes) {
  const std::int64_t layers = Dims(config).layers;
  const ActivationBytes bytes = activation_bytes(config, element_size);
  const auto cost = [&](Keep keep) { return recompute_cost(config, batch.time, element_size, keep); };
  const double input_cost = cost(Keep::input), qkv_cost = cost(Keep::without_qkv), norms_cost = cost(Keep::matmuls);
  const std::int64_t room = available_bytes - activation_reserve_bytes - dense_buffer_bytes(config, element_size);
  const std::int64_t room_per_row = room / batch.rows() - bytes.working;

  // Few enough mixes to try them all. Which block has which policy makes no difference.
  struct Mix {
    std::int64_t input, qkv, norms;
  };
  Mix best{layers, 0, 0};
  double best_cost = std::numeric_limits<double>::infinity();
  for (std::int64_t input = 0; input <= layers; ++input)
    for (std::int64_t qkv = 0; qkv <= layers - input; ++qkv) {
      const std::int64_t others = layers - input - qkv;
      const std::int64_t shared = input > 0 ? bytes.shared(Keep::input) : qkv > 0 ? bytes.shared(Keep::without_qkv) : 0;
      const std::int64_t taken =
          shared + input * bytes.kept(Keep::input) + qkv * bytes.kept(Keep::without_qkv) + others * bytes.kept(Keep::all);
      const std::int64_t norms = base::ceil_div(std::max<std::int64_t>(taken - room_per_row, 0), bytes.cheap);
      if (norms > others) continue;
      const double mix_cost = double(input) * input_cost + double(qkv) * qkv_cost + double(norms) * norms_cost;
      if (mix_cost >= best_cost) continue;
      best = {input, qkv, norms};
      best_cost = mix_cost;
    }

  std::vector<Keep> keep(static_cast<std::size_t>(best.input), Keep::input);
  keep.insert(keep.end(), static_cast<std::size_t>(best.qkv), Keep::without_qkv);
  keep.insert(keep.end(), static_cast<std::size_t>(best.norms), Keep::matmuls);
  keep.resize(static_cast<std::size_t>(layers), Keep::all);
  return keep;
}

std::int64_t needed_bytes(const config::ModelConfig& config, const MicroBatch& batch, std::int64_t element_size,
                          const std::vector<Keep>& keep) {
  const ActivationBytes bytes = activation_bytes(config, element_size);
  std::int64_t row = bytes.working, shared = 0;
  for (const Keep block : keep) {
    row += bytes.kept(block);
    shared = std::max(shared, bytes.shared(block));
  }
  return activation_reserve_bytes + dense_buffer_bytes(config, element_size) + batch.rows() * (row + shared);
}

std::string describe(const std::vector<Keep>& keep) {
  const auto count = [&](Keep policy) { return std::count(keep.begin(), keep.end(), policy); };
  if (count(Keep::all) == static_cast<std::ptrdiff_t>(keep.size())) return "all kept";
  std::vector<std::string> parts;
  if (count(Keep::all) > 0) parts.push_back(fmt::format("kept whole in {} blocks", count(Keep::all)));
  if (count(Keep::matmuls) > 0) parts.push_back(fmt::format("norms made again in {}", count(Keep::matmuls)));
  if (count(Keep::without_qkv) > 0) parts.push_back(fmt::format("norms and qkv made again in {}", count(Keep::without_qkv)));
  if (count(Keep::input) > 0) parts.push_back(fmt::format("everything made again in {}", count(Keep::input)));
  return base::join(parts, ", ");
}

}  // namespace lockstep::model
