// Counts what blocks keep and gives up the cheapest first.
#include "rank/model/recompute.h"

#include <algorithm>

#include "base/text.h"
#include "rank/model/dims.h"
#include "rank/model/head.h"

namespace lockstep::model {
ActivationBytes activation_bytes(const config::ModelConfig& config, std::int64_t element_size) {
  const Dims dims(config);
  ActivationBytes bytes{};
  bytes.input = element_size * dims.hidden + 4;
  bytes.matmuls = element_size * (dims.qkv_width() + dims.q_width() + dims.hidden + 2 * dims.intermediate) + 4 * dims.heads + 4;
  bytes.cheap = element_size * (2 * dims.hidden + dims.intermediate + (dims.qk_norm ? dims.q_width() + dims.kv_width() : 0));
  // The embedding's output, a norm, a branch, the stream's gradient and SwiGLU; attention's backward, which takes most where records are
  // packed: dq in rows as wide as qkv, with its sums in f32, and f32 sums of a key and a value gradient for every query head.
  const std::int64_t attention = 3 * dims.qkv_width() + 4 * dims.q_width() + 2 * dims.kv_width();
  bytes.working = element_size * (4 * dims.hidden + dims.intermediate + (dims.qk_norm ? dims.q_width() + dims.kv_width() : 0) + attention);
  return bytes;
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
  return activation_reserve_bytes + dense_buffer_bytes(config, element_size) + logits + rows * (bytes.input + bytes.matmuls + bytes.cheap);
}

std::vector<Keep> choose_keep(const config::ModelConfig& config, std::int64_t rows, std::int64_t element_size,
                              std::int64_t available_bytes) {
  const std::int64_t layers = Dims(config).layers;
  const ActivationBytes bytes = activation_bytes(config, element_size);
  std::vector<Keep> keep(static_cast<std::size_t>(layers), Keep::all);
  std::int64_t missing = activation_reserve_bytes + dense_buffer_bytes(config, element_size) +
                         rows * (bytes.working + layers * (bytes.input + bytes.matmuls + bytes.cheap)) - available_bytes;
  // Norms and SwiGLU first: making them again costs memory traffic alone, while a block's matmuls cost a third of its step.
  const auto give_up = [&](Keep from, Keep to, std::int64_t saved_per_row) {
    for (Keep& block : keep) {
      if (missing <= 0) return;
      if (block != from) continue;
      block = to;
      missing -= rows * saved_per_row;
    }
  };
  give_up(Keep::all, Keep::matmuls, bytes.cheap);
  if (missing <= 0) return keep;
  missing += rows * bytes.matmuls;  // blocks that are made whole again share a place for what their matmuls make
  give_up(Keep::matmuls, Keep::input, bytes.matmuls);
  return keep;
}

std::string describe(const std::vector<Keep>& keep) {
  const auto count = [&](Keep policy) { return std::count(keep.begin(), keep.end(), policy); };
  if (count(Keep::all) == static_cast<std::ptrdiff_t>(keep.size())) return "all kept";
  std::vector<std::string> parts;
  if (count(Keep::all) > 0) parts.push_back(fmt::format("kept whole in {} blocks", count(Keep::all)));
  if (count(Keep::matmuls) > 0) parts.push_back(fmt::format("norms made again in {}", count(Keep::matmuls)));
  if (count(Keep::input) > 0) parts.push_back(fmt::format("everything made again in {}", count(Keep::input)));
  return base::join(parts, ", ");
}

}  // namespace lockstep::model
