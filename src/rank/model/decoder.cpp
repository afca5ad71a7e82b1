// The decoder: embedding, blocks, head, and the loop over them in both directions.
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "rank/kernels/fp8.h"
#include "rank/model/block.h"
#include "rank/model/buffers.h"
#include "rank/model/head.h"
#include "rank/model/kv_cache.h"
#include "rank/model/model.h"
#include "rank/model/offload.h"
#include "rank/model/trace_range.h"
#include "rank/model/rotary.h"

namespace lockstep::model {

namespace {

// The unit whose first leaf stands in for the frozen one's where a module is trained whole.
Unit& trained_or(Unit* whole, Unit& frozen) { return whole ? *whole : frozen; }

// The stream at the last real token of every sequence: [batch, hidden].
ResidualStream last_rows(const ResidualStream& stream, std::int64_t time, std::span<const std::int64_t> counts) {
  const auto batch = stream.residual.size(0) / time;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < batch; ++i) rows.push_back(i * time + (counts.empty() ? time : counts[std::size_t(i)]) - 1);
  const at::Tensor chosen = at::tensor(rows, at::kLong).to(stream.residual.device());
  return {stream.residual.index_select(0, chosen), stream.delta.index_select(0, chosen)};
}

}  // namespace

struct Decoder::Parts {
  Dims dims;
  layout::LargestMatrix largest;
  std::int64_t window;
  Unit& embedding;
  std::vector<Block> blocks;
  BlockScratch scratch;       // of training and evaluation in turn: buffers are made anew where their shapes differ
  BlockScratch text_scratch;  // of decode(), whose shapes always differ
  Head head, text_head;       // training and evaluation; logits() and decode()
  std::vector<BlockActivations> saved;
  std::vector<std::pair<std::string, std::string>> range_names;  // "block 3 forward", "block 3 backward"
  at::Tensor embedded;                                           // [rows, hidden]
  at::Tensor dstream;                                            // [rows, hidden]
  const at::Tensor frequencies;
  // Grows with the longest sequence seen: a model's own limit may be far beyond. Shorter ones stay, because a recorded step reads them.
  std::vector<kernels::RotaryTable> rotary;
  std::function<void()> on_backward;
  std::function<void()> on_block = [] {};
  std::optional<Offload> offload;
  std::vector<std::size_t> offloaded;  // blocks whose inputs wait in host memory, in order

  Parts(const config::ModelConfig& config, const std::vector<Unit*>& units, const config::LoraConfig& lora,
        const std::vector<Unit*>& adapters, Recompute recompute)
      : dims(config),
        largest(layout::largest_matrix(config)),
        window(config.sliding_window),
        embedding(trained_or(adapters.front(), *units.front())),
        head(dims, *units.back(), adapters.back() ? adapters.back() : (dims.tied ? units.front() : nullptr),
             dims.tied && !adapters.back() && !adapters.front(), scratch),
        text_head(head, text_scratch),
        saved(dims.layers),
        frequencies(inverse_frequencies(dims.head_dim, dims.rope_theta, config.rope_scaling)) {
    for (std::int64_t i = 0; i < dims.layers; ++i) {
      blocks.emplace_back(config, dims, *units[i + 1], adapters[i + 1], lora, i, recompute);
      range_names.emplace_back(fmt::format("block {} forward", i), fmt::format("block {} backward", i));
    }
  }

  const kernels::RotaryTable& rotary_for(std::int64_t time) {
    if (rotary.empty() || rotary.back().cosine.size(0) < time) {
      const auto length = std::max(time, std::min<std::int64_t>(2 * time, dims.max_time));
      rotary.push_back(kernels::rotary_table(length, frequencies, embedding.weights().device()));
    }
    return rotary.back();
  }

  BlockContext context(const Input& input) {
    const auto device = embedding.weights().device();
    const auto time = input.tokens.size(1);
    BlockContext context{.time = time, .rotary = rotary_for(time), .scratch = &scratch};
    if (scratch.projection.fp8) scratch.projection.fp8->reserve(largest, input.tokens.numel());
    if (input.starts.defined()) pack(input.starts, device, context);
    if (input.keys.defined()) context.dropout = {input.keys, time};
    return context;
  }

  static void pack(const at::Tensor& starts, const at::Device& device, BlockContext& context) {
    base::check(starts.is_cpu() && starts.scalar_type() == at::kInt && starts.numel() >= 2, "packed records' starts are i32 on the host");
    const auto* start = starts.const_data_ptr<std::int32_t>();
    auto& segments = context.segments;
    segments.starts.assign(start, start + starts.numel());
    at::Tensor positions = at::empty({segments.starts.back()}, at::kInt);
    auto* position = positions.mutable_data_ptr<std::int32_t>();
    for (std::size_t i = 0; i + 1 < segments.starts.size(); ++i) {
      const auto begin = segments.starts[i], end = segments.starts[i + 1];
      base::check(begin < end, "packed records come in order and none is empty");
      segments.longest = std::max(segments.longest, end - begin);
      for (auto row = begin; row < end; ++row) position[row] = std::int32_t(row - begin);
    }
    segments.on_device = starts.to(device, /*non_blocking=*/true);
    context.positions = positions.to(device, /*non_blocking=*/true);
  }

  at::Tensor embed(const at::Tensor& tokens, at::Tensor& out) {
    fit(out, {tokens.numel(), dims.hidden}, embedding.weights().options());
    kernels::embedding_forward(tokens, embedding.weight(kEmbeddingWeight), out);
    return out;
  }

  ResidualStream evaluate(const Input& input) {
    at::Tensor own;
    ResidualStream stream{embed(input.tokens, own), {}};
    auto context = this->context(input);
    context.dropout = {};
    for (const auto& block : blocks) stream = block.forward(stream, context, nullptr);
    return stream;
  }
};

Decoder::Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, Recompute recompute) {
  base::check(std::int64_t(units.size()) == Dims(config).layers + 2, "a decoder has an embedding, its blocks and a head");
  parts_ = std::make_unique<Parts>(config, units, config::LoraConfig{}, std::vector<Unit*>(units.size()), recompute);
}

Decoder::Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, const config::LoraConfig& lora,
                 std::vector<Unit*> adapters) {
  base::check(std::int64_t(units.size()) == Dims(config).layers + 2, "a decoder has an embedding, its blocks and a head");
  base::check(adapters.empty() || adapters.size() == units.size(), "every unit has its adapters or none");
  adapters.resize(units.size());
  parts_ = std::make_unique<Parts>(config, units, lora, adapters, Recompute::none);
}

Decoder::~Decoder() = default;

void Decoder::set_recompute(const std::vector<Recompute>& policies, bool offload) {
  auto& p = *parts_;
  base::check(policies.size() == p.blocks.size(), "one policy per block");
  const at::Device device = p.embedding.weights().device();
  p.offload.reset();
  p.offloaded.clear();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    p.blocks[i].set_recompute(policies[i]);
    if (offload && policies[i] == Recompute::blocks && i > 0)
      p.offloaded.push_back(i);  // the first block's input is the embedding's output
    p.saved[i] = {};
  }
  if (!p.offloaded.empty() && !device.is_cpu()) p.offload.emplace(device);
  if (!p.offload) p.offloaded.clear();
  p.head.set_lean(std::find(policies.begin(), policies.end(), Recompute::none) == policies.end());
}

void Decoder::release_buffers() {
  auto& p = *parts_;
  for (BlockActivations& saved : p.saved) saved = {};
  const kernels::Fp8Table* fp8 = p.scratch.projection.fp8 ? &p.scratch.projection.fp8->table() : nullptr;
  p.scratch = p.text_scratch = {};
  if (fp8) use_fp8(*fp8);
  p.embedded = p.dstream = at::Tensor();
  p.head.release_buffers();
  p.text_head.release_buffers();
}

void Decoder::use_fp8() { use_fp8(kernels::fp8_table(parts_->embedding.weights().device())); }

void Decoder::use_fp8(const kernels::Fp8Table& table) {
  const at::Tensor& weights = parts_->embedding.weights();
  base::check(weights.scalar_type() == at::kBFloat16, "8-bit products are for bf16 models");
  parts_->scratch.projection.fp8.emplace(weights.device(), table);
}

std::int64_t Decoder::head_additions() const { return parts_->head.additions(); }
void Decoder::set_most_head_chunks(std::int64_t most) { parts_->head.set_most_chunks(most); }
const Unit* Decoder::head_owner() const { return parts_->head.owner().trainable() ? &parts_->head.owner() : nullptr; }

void Decoder::on_backward(std::function<void()> callback) { parts_->on_backward = std::move(callback); }
void Decoder::on_block(std::function<void()> callback) { parts_->on_block = std::move(callback); }

at::Tensor Decoder::forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale) {
  return forward_backward({.tokens = tokens, .targets = targets}, scale);
}

at::Tensor Decoder::forward_backward(const Input& input, const at::Tensor& scale) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  const auto context = p.context(input);
  ResidualStream stream{p.embed(input.tokens, p.embedded), {}};
  std::size_t away = 0;  // entries on their way to the host
  for (std::size_t i = 0; i < p.blocks.size(); ++i) {
    const bool leaves = away < p.offloaded.size() && p.offloaded[away] == i;
    if (leaves) p.saved[i].x = p.offload->take(away);
    const TraceRange range(p.range_names[i].first);
    stream = p.blocks[i].forward(stream, context, &p.saved[i]);
    p.on_block();
    if (!leaves) continue;
    p.offload->store(away, p.saved[i].x, p.offloaded.size());
    ++away;
  }

  if (p.on_backward) p.on_backward();
  const auto& dstream = fit(p.dstream, stream.residual.sizes(), stream.residual.options());
  const auto loss = [&] {
    const TraceRange range("head and loss");
    return p.head.loss_backward(stream, input.targets.reshape({-1}), scale, dstream);
  }();
  for (std::size_t i = p.blocks.size(); i-- > 0;) {
    const TraceRange range(p.range_names[i].second);
    if (away > 0 && p.offloaded[away - 1] == i) p.saved[i].x = p.offload->fetch(--away);
    p.blocks[i].backward(dstream, context, p.saved[i], /*further=*/i > 0 || p.embedding.trainable());
    p.on_block();
  }
  if (p.embedding.trainable()) {
    const TraceRange range("embedding backward");
    kernels::embedding_backward(input.tokens, dstream, p.embedding.gradient(kEmbeddingWeight));
    p.embedding.gradient_ready(kEmbeddingWeight);
  }
  return loss;
}

at::Tensor Decoder::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  return loss_sum({.tokens = tokens, .targets = targets});
}

at::Tensor Decoder::loss_sum(const Input& input) { return score(input).loss; }

Score Decoder::score(const Input& input) {
  const c10::NoGradGuard no_graph;
  return parts_->head.score(parts_->evaluate(input), input.targets.reshape({-1}));
}

at::Tensor Decoder::logits(const at::Tensor& tokens) {
  const c10::NoGradGuard no_graph;
  return parts_->text_head.logits(parts_->evaluate({.tokens = tokens, .targets = {}}))
      .view({tokens.size(0), tokens.size(1), parts_->dims.vocab});
}

KvCache Decoder::make_cache(std::int64_t batch) const {
  return KvCache(parts_->dims, parts_->window, batch, parts_->embedding.weights().options());
}

at::Tensor Decoder::decode(const at::Tensor& tokens, KvCache& cache, std::span<const std::int64_t> counts) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  const KvCache::Step step = cache.begin(tokens.size(1));
  const BlockContext context{.time = step.time, .positions = step.positions, .rotary = p.rotary_for(step.span), .scratch = &p.text_scratch};
  at::Tensor own;
  ResidualStream stream{p.embed(tokens, own), {}};
  for (std::size_t i = 0; i < p.blocks.size(); ++i) stream = p.blocks[i].decode(stream, context, i, cache, step);
  cache.finish(step, counts);
  return p.text_head.logits(step.time == 1 ? stream : last_rows(stream, step.time, counts));
}

Decoder::Held Decoder::held() const {
  const auto& p = *parts_;
  HeldMemory memory;
  for (const BlockActivations& saved : p.saved) add_to(memory, saved);
  add_to(memory, p.scratch.activations);
  for (const at::Tensor* one : {&p.scratch.norm, &p.scratch.hidden, &p.scratch.dmixed, &p.scratch.dqkv, &p.embedded, &p.dstream})
    memory.add(*one);
  p.head.add_to(memory);
  for (const kernels::RotaryTable& table : p.rotary) {
    memory.add(table.cosine);
    memory.add(table.sine);
  }
  HeldMemory dense;
  dense.add(p.scratch.projection.dense);
  return {.activations = memory.bytes(), .dense_copy = dense.bytes(), .logits = p.head.logits_bytes()};
}

void Decoder::reset_magnitudes() {
  const c10::NoGradGuard no_graph;
  for (const Block& block : parts_->blocks) {
    for (const Projection* projection : block.projections()) {
      if (projection->adapter() && projection->adapter()->is_dora())
        projection->adapter()->reset_magnitude(projection->weight(parts_->scratch.projection));
    }
  }
}

}  // namespace lockstep::model
