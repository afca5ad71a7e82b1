// Counts what blocks keep and what making it again costs, and looks for the cheapest mix that fits.
#include "layout/recompute.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/text.h"
#include "layout/decoder.h"
#include "layout/memory/logits.h"

namespace lockstep::layout {
namespace {

// What a device multiplies while it moves one byte, in floating-point operations: large bf16 matmuls on an H200 run at 680 TFLOP/s, kernels
// that only read and write at 4.2 TB/s. Other GPUs are near: what counts is the order of magnitude.
constexpr double kFlopsPerByte = 160;
// Attention's forward against matmuls: 250 TFLOP/s with heads of 64, 490 with heads of 128.
constexpr double kAttentionSpeed = 0.5;

}  // namespace

std::vector<Activation> block_activations(const config::ModelConfig& model, std::int64_t element_size) {
  const Dims d(model);
  const auto numbers = [&](std::int64_t width) { return element_size * width; };
  constexpr std::int64_t f32 = 4;
  std::vector<Activation> all = {{"stream", numbers(d.hidden), Recompute::automatic},
                                 {"first norm's scale", f32, d.norms_behind ? Recompute::blocks : Recompute::automatic},
                                 {"attention", numbers(d.q_width()), Recompute::blocks},
                                 {"attention's log sums", f32 * d.heads, Recompute::blocks},
                                 {"stream between", numbers(d.hidden), Recompute::blocks},
                                 {"second norm's scale", f32, Recompute::blocks},
                                 {"gate and up", numbers(2 * d.intermediate), Recompute::blocks},
                                 {"q, k, v", numbers(d.qkv_width()), Recompute::qkv},
                                 {"SwiGLU", numbers(d.intermediate), Recompute::norms}};
  // A norm behind a branch needs what the branch made; one before it makes what the branch needs.
  const Recompute given_up_from = d.norms_behind ? Recompute::blocks : Recompute::norms;
  for (const char* name : {"first norm", "second norm"}) all.push_back({name, numbers(d.hidden), given_up_from});
  if (d.qk_norm) all.push_back({"q, k normed", numbers(d.q_width() + d.kv_width()), Recompute::norms});
  return all;
}

ActivationBytes activation_bytes(const config::ModelConfig& config, std::int64_t element_size) {
  constexpr std::int64_t f32 = 4;
  const Dims dims(config);
  ActivationBytes bytes;
  for (const Activation& one : block_activations(config, element_size)) {
    switch (one.given_up_from) {
      case Recompute::automatic: bytes.input += one.bytes; break;
      case Recompute::blocks: bytes.blocks += one.bytes; break;
      case Recompute::qkv: bytes.qkv += one.bytes; break;
      case Recompute::norms: bytes.norms += one.bytes; break;
      case Recompute::none: throw base::Bug("an activation that nobody keeps");
    }
  }
  // The embedding's output, a norm, a branch, the stream's gradient and SwiGLU; attention's backward, which takes most where records are
  // packed: dq in rows as wide as qkv, with its sums in f32, and f32 sums of a key and a value gradient for every query head.
  const std::int64_t attention = 3 * dims.qkv_width() + 4 * dims.q_width() + 2 * dims.kv_width();
  bytes.working = element_size * (4 * dims.hidden + dims.intermediate + (dims.qk_norm ? dims.q_width() + dims.kv_width() : 0) + attention);
  // Attention's gradients have a place of their own where gate and up have too little.
  const std::int64_t heads = dims.q_width() + dims.qkv_width();
  bytes.head = element_size * (3 * dims.hidden + dims.intermediate + (dims.qk_norm ? dims.q_width() + dims.kv_width() : 0) +
                               (heads > 2 * dims.intermediate ? heads : 0)) +
               2 * f32;
  return bytes;
}

std::int64_t ActivationBytes::kept(Recompute policy) const {
  switch (policy) {
    case Recompute::none: return input + blocks + qkv + norms;
    case Recompute::norms: return input + blocks + qkv;
    case Recompute::qkv: return input + blocks;
    case Recompute::blocks: return input;
    case Recompute::automatic: break;
  }
  throw base::Bug("a policy that has no size");
}

// The place of norms and SwiGLU is counted as working memory: blocks that keep them need it as well, for gradients.
std::int64_t ActivationBytes::shared(Recompute policy) const {
  return policy == Recompute::blocks ? blocks + qkv : policy == Recompute::qkv ? qkv : 0;
}

double recompute_cost(const config::ModelConfig& config, std::int64_t time, std::int64_t element_size, Recompute policy) {
  const Dims d(config);
  const std::int64_t rotation = 2 * (d.q_width() + d.kv_width());  // read and written
  const std::int64_t qkv_flops = 2 * d.hidden * d.qkv_width();
  const auto cost = [&](std::int64_t moved, std::int64_t flops) { return double(element_size * moved) + double(flops) / kFlopsPerByte; };
  // Both norms are read and written; the pass that makes SwiGLU's gradient writes its output too.
  const std::int64_t cheap = (d.norms_behind ? 0 : 4 * d.hidden) + d.intermediate;
  switch (policy) {
    case Recompute::none: return 0;
    case Recompute::norms: return cost(cheap + (d.qk_norm ? rotation : 0), 0);
    case Recompute::qkv: return cost(cheap + rotation, qkv_flops);
    case Recompute::automatic: break;
    case Recompute::blocks: {
      // The first norm twice, because the second takes its place; the sum before the second; SwiGLU in a pass of its own.
      const std::int64_t moved = 8 * d.hidden + rotation + 3 * d.intermediate;
      // A norm behind its branch wants the last matmul again, too.
      const std::int64_t flops = qkv_flops + 2 * d.hidden * (d.q_width() + (d.norms_behind ? 3 : 2) * d.intermediate);
      const std::int64_t attention = 2 * time * d.q_width();  // two products, half of each behind the causal mask
      return cost(moved, flops + std::int64_t(double(attention) / kAttentionSpeed));
    }
  }
  throw base::Bug("a policy that has no cost");
}

std::int64_t dense_buffer_bytes(const config::ModelConfig& config, std::int64_t element_size) {
  if (!config.load_in_4bit && !config.load_in_8bit) return 0;
  return element_size * largest_matrix(config).elements;
}

std::int64_t evaluation_bytes(const config::ModelConfig& config, std::int64_t rows, std::int64_t element_size) {
  const ActivationBytes bytes = activation_bytes(config, element_size);
  // The head chose its chunk when more was free: the reserve may not hold it.
  const std::int64_t logits = std::min(most_logits_bytes, rows * Dims(config).vocab * element_size);
  return activation_reserve_bytes + dense_buffer_bytes(config, element_size) + logits + rows * bytes.kept(Recompute::none);
}

namespace {

constexpr std::array all_policies{Recompute::none, Recompute::norms, Recompute::qkv, Recompute::blocks};  // from mild to strict

// Few enough mixes to try them all. Which layer has which policy makes no difference.
std::vector<Recompute> cheapest_of_equal(const LayerCost& layer, std::int64_t layers, std::int64_t room) {
  const ActivationBytes& bytes = layer.bytes;
  struct Mix {
    std::int64_t input, qkv, norms;
  };
  Mix best{layers, 0, 0};
  double best_cost = std::numeric_limits<double>::infinity();
  for (std::int64_t input = 0; input <= layers; ++input)
    for (std::int64_t qkv = 0; qkv <= layers - input; ++qkv) {
      const std::int64_t others = layers - input - qkv;
      const std::int64_t shared = input > 0 ? bytes.shared(Recompute::blocks) : qkv > 0 ? bytes.shared(Recompute::qkv) : 0;
      const std::int64_t taken =
          shared + input * bytes.kept(Recompute::blocks) + qkv * bytes.kept(Recompute::qkv) + others * bytes.kept(Recompute::none);
      const std::int64_t norms = base::ceil_div(std::max<std::int64_t>(taken - room, 0), bytes.norms);
      if (norms > others) continue;
      const double mix_cost = double(input) * layer.blocks + double(qkv) * layer.qkv + double(norms) * layer.norms;
      if (mix_cost >= best_cost) continue;
      best = {input, qkv, norms};
      best_cost = mix_cost;
    }

  std::vector<Recompute> policies(static_cast<std::size_t>(best.input), Recompute::blocks);
  policies.insert(policies.end(), static_cast<std::size_t>(best.qkv), Recompute::qkv);
  policies.insert(policies.end(), static_cast<std::size_t>(best.norms), Recompute::norms);
  policies.resize(static_cast<std::size_t>(layers), Recompute::none);
  return policies;
}

std::int64_t taken_by(const std::vector<LayerCost>& layers, const std::vector<Recompute>& policies) {
  std::int64_t taken = 0, shared = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    taken += layers[i].bytes.kept(policies[i]);
    shared = std::max(shared, layers[i].bytes.shared(policies[i]));
  }
  return taken + shared;
}

double cost_of(const std::vector<LayerCost>& layers, const std::vector<Recompute>& policies) {
  double cost = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) cost += layers[i].cost(policies[i]);
  return cost;
}

// With policies up to `strictest`, or nothing where that does not fit: what layers share is there as soon as one of them is so strict.
std::optional<std::vector<Recompute>> stepwise(const std::vector<LayerCost>& layers, std::int64_t room, Recompute strictest) {
  std::vector<Recompute> policies(layers.size(), Recompute::none);
  while (taken_by(layers, policies) > room) {
    double best = std::numeric_limits<double>::infinity();
    std::size_t where = 0;
    Recompute next = Recompute::none;
    for (std::size_t i = 0; i < layers.size(); ++i)
      for (const Recompute policy : all_policies) {
        const std::int64_t saved = layers[i].bytes.kept(policies[i]) - layers[i].bytes.kept(policy);
        if (policy > strictest || saved <= 0) continue;
        const double price = (layers[i].cost(policy) - layers[i].cost(policies[i])) / double(saved);
        if (price >= best) continue;
        best = price, where = i, next = policy;
      }
    if (next == Recompute::none) return std::nullopt;
    policies[where] = next;
  }
  // The last steps may have saved more than was needed.
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const Recompute milder : all_policies) {
      const Recompute before = policies[i];
      if (milder >= before) break;
      policies[i] = milder;
      if (taken_by(layers, policies) <= room) break;
      policies[i] = before;
    }
  return policies;
}

}  // namespace

double LayerCost::cost(Recompute policy) const {
  switch (policy) {
    case Recompute::none: return 0;
    case Recompute::norms: return norms;
    case Recompute::qkv: return qkv;
    case Recompute::blocks: return blocks;
    case Recompute::automatic: break;
  }
  throw base::Bug("a policy that has no cost");
}

std::vector<Recompute> cheapest_policies(const std::vector<LayerCost>& layers, std::int64_t room) {
  const bool equal = std::all_of(layers.begin(), layers.end(), [&](const LayerCost& one) { return one == layers.front(); });
  if (equal) return cheapest_of_equal(layers.front(), static_cast<std::int64_t>(layers.size()), room);
  std::vector<Recompute> best(layers.size(), Recompute::blocks);
  for (const Recompute strictest : {Recompute::norms, Recompute::qkv, Recompute::blocks}) {
    const auto found = stepwise(layers, room, strictest);
    if (found && (cost_of(layers, *found) < cost_of(layers, best) || taken_by(layers, best) > room)) best = *found;
  }
  return best;
}

std::vector<Recompute> choose_recompute(const config::ModelConfig& config, const MicroBatch& batch, std::int64_t element_size,
                                        std::int64_t available_bytes) {
  const ActivationBytes bytes = activation_bytes(config, element_size);
  const auto cost = [&](Recompute policy) { return recompute_cost(config, batch.time, element_size, policy); };
  const LayerCost layer{bytes, cost(Recompute::norms), cost(Recompute::qkv), cost(Recompute::blocks)};
  const std::int64_t room = available_bytes - activation_reserve_bytes - dense_buffer_bytes(config, element_size);
  return cheapest_policies(std::vector(static_cast<std::size_t>(Dims(config).layers), layer), room / batch.rows() - bytes.working);
}

std::vector<Recompute> recompute_for(const config::RunConfig& config, const MicroBatch& batch, std::int64_t element_size,
                                     std::int64_t available_bytes) {
  const config::TrainerConfig& trainer = config.trainer;
  if (trainer.recompute == Recompute::automatic) return choose_recompute(config.model, batch, element_size, available_bytes);
  const auto blocks = static_cast<std::size_t>(config.model.num_layers);
  if (trainer.recompute != Recompute::blocks) return std::vector(blocks, trainer.recompute);
  std::vector policies(blocks, Recompute::norms);
  for (std::size_t i = 0; i < blocks; i += static_cast<std::size_t>(trainer.recompute_every)) policies[i] = Recompute::blocks;
  return policies;
}

std::int64_t needed_bytes(const config::ModelConfig& config, const MicroBatch& batch, std::int64_t element_size,
                          const std::vector<Recompute>& keep) {
  const ActivationBytes bytes = activation_bytes(config, element_size);
  std::int64_t row = bytes.working, shared = 0;
  for (const Recompute block : keep) {
    row += bytes.kept(block);
    shared = std::max(shared, bytes.shared(block));
  }
  return activation_reserve_bytes + dense_buffer_bytes(config, element_size) + batch.rows() * (row + shared);
}

std::string describe(const std::vector<Recompute>& keep) {
  const auto count = [&](Recompute policy) { return std::count(keep.begin(), keep.end(), policy); };
  if (count(Recompute::none) == static_cast<std::ptrdiff_t>(keep.size())) return "all kept";
  std::vector<std::string> parts;
  if (count(Recompute::none) > 0) parts.push_back(fmt::format("kept whole in {} blocks", count(Recompute::none)));
  if (count(Recompute::norms) > 0) parts.push_back(fmt::format("norms recomputed in {}", count(Recompute::norms)));
  if (count(Recompute::qkv) > 0) parts.push_back(fmt::format("norms and qkv recomputed in {}", count(Recompute::qkv)));
  if (count(Recompute::blocks) > 0) parts.push_back(fmt::format("everything recomputed in {}", count(Recompute::blocks)));
  return base::join(parts, ", ");
}

}  // namespace lockstep::layout
