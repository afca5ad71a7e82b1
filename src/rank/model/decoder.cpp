// The ends of a text model, embedding and head, around the layers; what a batch of text tells them; and decoding.
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "rank/kernels/fp8.h"
#include "rank/model/block.h"
#include "rank/model/head.h"
#include "rank/model/model.h"
#include "rank/model/post_norm_block.h"
#include "rank/model/trace_range.h"
#include "rank/model/parts/rotary.h"
#include "rank/model/weights/whole_store.h"

namespace lockstep::model {

namespace {

std::optional<StoredUnit> adapters_of(Store& store, std::size_t unit) {
  const std::optional<std::size_t> found = store.adapters_of(unit);
  return found ? std::optional(StoredUnit(store, *found)) : std::nullopt;
}

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
  LayerRange range;
  layout::LargestMatrix largest;
  std::int64_t window;
  std::optional<StoredUnit> embedding;  // the one that is trained whole, where there is one beside the frozen one
  std::optional<Head> head;
  at::TensorOptions options;  // of weights as layers read them
  Workspace work;             // of training and evaluation in turn: buffers are made anew where their shapes differ
  Workspace text_work;        // of decode(), whose shapes always differ
  const at::Tensor frequencies;
  // Grows with the longest sequence seen: a model's own limit may be far beyond. Shorter ones stay, because a recorded step reads them.
  std::vector<kernels::RotaryTable> rotary;
  bool without_plan = false;  // of packed attention, see Segments

  Parts(const config::ModelConfig& config, Store& store, LayerRange of_layers)
      : dims(config),
        range(of_layers),
        largest(layout::largest_matrix(config)),
        window(config.sliding_window),
        options(store.options(std::size_t(range.begin) + 1)),
        frequencies(inverse_frequencies(dims.head_dim, dims.rope_theta, config.rope_scaling)) {
    base::check(0 <= range.begin && range.begin < range.end && range.end <= dims.layers, "a stage has layers of its model");
    if (range.begin == 0) embedding = adapters_of(store, 0).value_or(StoredUnit(store, 0));
    if (range.end == dims.layers) make_head(store);
  }

  void make_head(Store& store) {
    const auto last = std::size_t(dims.layers) + 1;
    const std::optional<StoredUnit> whole = adapters_of(store, last);
    const bool shared = dims.tied && !whole && !adapters_of(store, 0);
    head.emplace(dims, StoredUnit(store, last), whole ? whole : dims.tied ? std::optional(StoredUnit(store, 0)) : std::nullopt, shared);
  }

  std::vector<std::unique_ptr<Layer>> make_layers(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store) const {
    std::vector<std::unique_ptr<Layer>> layers;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const StoredUnit unit(store, std::size_t(i) + 1);
      if (dims.norms_behind)
        layers.push_back(std::make_unique<PostNormBlock>(config, dims, unit, adapters_of(store, unit.index()), lora, i));
      else
        layers.push_back(std::make_unique<Block>(config, dims, unit, adapters_of(store, unit.index()), lora, i));
    }
    return layers;
  }

  at::Device device() const { return options.device(); }

  Head& end() {
    base::check(embedding && head, "a part of a model has no say in what comes out of it");
    return *head;
  }

  const kernels::RotaryTable& rotary_for(std::int64_t time) {
    if (rotary.empty() || rotary.back().cosine.size(0) < time) {
      const auto length = std::max(time, std::min<std::int64_t>(2 * time, dims.max_time));
      rotary.push_back(kernels::rotary_table(length, frequencies, device()));
    }
    return rotary.back();
  }

  void begin(Flight& flight, const Input& input, const Micro& micro) {
    flight.micro = micro;
    flight.tokens = input.tokens;
    flight.targets = input.targets;
    flight.time = input.tokens.size(1);
    flight.rotary = rotary_for(flight.time);
    flight.work = &work;
    if (work.projection.fp8) work.projection.fp8->reserve(largest, input.tokens.numel());
    flight.positions = at::Tensor();
    flight.segments = {};
    if (input.starts.defined()) pack(input.starts, flight);
    flight.dropout = input.keys.defined() ? Dropout{input.keys, flight.time} : Dropout{};
    if (embedding) embed(flight, {Pass::Direction::forward, micro});
  }

  void pack(const at::Tensor& starts, Flight& flight) {
    base::check(starts.is_cpu() && starts.scalar_type() == at::kInt && starts.numel() >= 2, "packed records' starts are i32 on the host");
    const auto* start = starts.const_data_ptr<std::int32_t>();
    auto& segments = flight.segments;
    segments.without_plan = &without_plan;
    segments.starts.assign(start, start + starts.numel());
    at::Tensor positions = at::empty({segments.starts.back()}, at::kInt);
    auto* position = positions.mutable_data_ptr<std::int32_t>();
    for (std::size_t i = 0; i + 1 < segments.starts.size(); ++i) {
      const auto begin = segments.starts[i], end = segments.starts[i + 1];
      base::check(begin < end, "packed records come in order and none is empty");
      segments.longest = std::max(segments.longest, end - begin);
      for (auto row = begin; row < end; ++row) position[row] = std::int32_t(row - begin);
    }
    segments.on_device = starts.to(device(), /*non_blocking=*/true);
    flight.positions = positions.to(device(), /*non_blocking=*/true);
  }

  // tokens -> the first border.
  void embed(Flight& flight, const Pass& pass) const {
    embedding->open(pass);
    fit(flight.embedded, {flight.tokens.numel(), dims.hidden}, embedding->options());
    kernels::embedding_forward(flight.tokens, embedding->weight(kEmbeddingWeight), flight.embedded);
    embedding->close(pass);
    flight.border.streams.assign(1, {flight.embedded, {}});
  }

  // Lets go of what belongs to others; a flight's own buffers stay for the next.
  static void land(Flight& flight) {
    flight.tokens = flight.targets = flight.positions = at::Tensor();
    flight.segments = {};
    flight.dropout = {};
    flight.border.streams.clear();
  }
};

Decoder::Decoder(std::unique_ptr<Parts> parts, const config::ModelConfig& config, const config::LoraConfig& lora, Store& store)
    : Stage(parts->make_layers(config, lora, store), parts->device(), parts->range.begin), parts_(std::move(parts)) {}

Decoder::Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store, LayerRange range)
    : Decoder(std::make_unique<Parts>(config, store, range), config, lora, store) {}

Decoder::Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store)
    : Decoder(config, lora, store, LayerRange{0, Dims(config).layers}) {}

Decoder::Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, std::unique_ptr<Store> own)
    : Decoder(config, lora, *own) {
  own_store_ = std::move(own);
}

Decoder::Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, Recompute recompute)
    : Decoder(config, units, config::LoraConfig{}, {}) {
  set_recompute(std::vector<Recompute>(layers().size(), recompute));
}

Decoder::Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, const config::LoraConfig& lora,
                 std::vector<Unit*> adapters)
    : Decoder(config, lora, std::make_unique<WholeStore>(units, std::move(adapters))) {
  base::check(std::int64_t(units.size()) == parts_->dims.layers + 2, "a decoder has an embedding, its blocks and a head");
}

Decoder::~Decoder() = default;

Decoder& Decoder::of(Stage& stage) {
  auto* decoder = dynamic_cast<Decoder*>(&stage);
  base::check(decoder != nullptr, "a task of text trains a decoder");
  return *decoder;
}

void Decoder::set_recompute(const std::vector<Recompute>& policies, bool offload) {
  Stage::set_recompute(policies, offload);
  if (parts_->head) parts_->head->set_lean(std::find(policies.begin(), policies.end(), Recompute::none) == policies.end());
}

void Decoder::release_buffers() {
  auto& p = *parts_;
  const kernels::Fp8Table* fp8 = p.work.projection.fp8 ? &p.work.projection.fp8->table() : nullptr;
  const HeadWork counted{.additions = p.work.head.additions, .logits_bytes = p.work.head.logits_bytes};
  Stage::release_buffers();
  p.text_work = {};
  p.work = {.head = counted};
  if (fp8) use_fp8(*fp8);
}

void Decoder::use_fp8() { use_fp8(kernels::fp8_table(device())); }

void Decoder::use_fp8(const kernels::Fp8Table& table) {
  base::check(parts_->options.dtype() == at::kBFloat16, "8-bit products are for bf16 models");
  parts_->work.projection.fp8.emplace(device(), table);
}

std::optional<std::size_t> Decoder::often_added() const {
  if (!parts_->head || !parts_->head->owner().trained()) return std::nullopt;
  return parts_->head->owner().index();
}
std::int64_t Decoder::additions() const { return parts_->work.head.additions; }
void Decoder::set_most_chunks(std::int64_t most) {
  if (parts_->head) parts_->head->set_most_chunks(most);
}

at::Tensor Decoder::forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale) {
  return forward_backward({.tokens = tokens, .targets = targets}, scale);
}

at::Tensor Decoder::forward_backward(const Input& input, const at::Tensor& scale, const Micro& micro) {
  forward(input, micro);
  return backward(scale);
}

void Decoder::forward(const Input& input, const Micro& micro, std::size_t which) {
  const c10::NoGradGuard no_graph;
  Flight& flight = this->flight(which);
  parts_->begin(flight, input, micro);
  walk_forward(flight);
  if (parts_->head)
    park(flight);
  else
    send(flight);
}

at::Tensor Decoder::backward(const at::Tensor& scale, std::size_t which) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  Flight& flight = this->flight(which);
  const Pass pass{Pass::Direction::backward, flight.micro};
  at::Tensor loss;
  if (p.head) {
    const TraceRange range("head and loss");
    const ResidualStream& stream = flight.border.streams.front();
    gradient().streams.resize(1);
    const at::Tensor& dstream = fit(gradient().streams.front(), stream.residual.sizes(), stream.residual.options());
    p.head->open(pass);
    loss = p.head->loss_backward(stream, flight.targets.reshape({-1}), scale, dstream, p.work);
    p.head->close(pass);
  }
  walk_backward(flight, /*further=*/!p.embedding || p.embedding->trained());
  if (p.embedding && p.embedding->trained()) {
    const TraceRange range("embedding backward");
    p.embedding->open(pass);
    kernels::embedding_backward(flight.tokens, gradient().streams.front(), p.embedding->gradient(kEmbeddingWeight));
    p.embedding->complete(kEmbeddingWeight);
    p.embedding->close(pass);
  }
  p.land(flight);
  return loss;
}

void Decoder::evaluate(Flight& flight, const Input& input) {
  parts_->begin(flight, input, {});
  flight.dropout = {};
  look_through(flight);
}

at::Tensor Decoder::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  return loss_sum({.tokens = tokens, .targets = targets});
}

at::Tensor Decoder::loss_sum(const Input& input) { return score(input).loss; }

Score Decoder::score(const Input& input) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  Head& head = p.end();
  Flight flight;
  evaluate(flight, input);
  head.open({});
  const Score score = head.score(flight.border.streams.front(), input.targets.reshape({-1}), p.work);
  head.close({});
  return score;
}

at::Tensor Decoder::logits(const at::Tensor& tokens) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  Head& head = p.end();
  Flight flight;
  evaluate(flight, {.tokens = tokens, .targets = {}});
  head.open({});
  const at::Tensor logits = head.logits(flight.border.streams.front(), p.text_work);
  head.close({});
  return logits.view({tokens.size(0), tokens.size(1), p.dims.vocab});
}

DecodeCache Decoder::make_cache(std::int64_t batch) const {
  std::vector<std::unique_ptr<DecodeState>> states;
  for (const auto& layer : layers()) states.push_back(layer->make_decode_state(batch));
  return DecodeCache(parts_->dims, parts_->window, batch, device(), std::move(states));
}

at::Tensor Decoder::decode(const at::Tensor& tokens, DecodeCache& cache, std::span<const std::int64_t> counts) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  Head& head = p.end();
  const Pass pass{Pass::Direction::forward};
  const DecodeStep step = cache.begin(tokens.size(1));
  Flight flight{.tokens = tokens, .time = step.time, .positions = step.positions, .rotary = p.rotary_for(step.span), .work = &p.text_work};
  p.embed(flight, pass);
  for (std::size_t i = 0; i < layers().size(); ++i) {
    layers()[i]->open(pass);
    layers()[i]->decode(flight.border, flight, cache.layer(i), step);
    layers()[i]->close(pass);
  }
  cache.finish(step, counts);
  const ResidualStream& stream = flight.border.streams.front();
  head.open(pass);
  const at::Tensor logits = head.logits(step.time == 1 ? stream : last_rows(stream, step.time, counts), p.text_work);
  head.close(pass);
  return logits;
}

Stage::Held Decoder::held() const {
  const auto& p = *parts_;
  HeldMemory memory;
  add_to(memory);
  if (p.work.kept) p.work.kept->add_to(memory);
  for (const at::Tensor* one :
       {&p.work.norm, &p.work.hidden, &p.work.dmixed, &p.work.dqkv, &p.work.head.rstd, &p.work.head.losses, &p.work.head.correct})
    memory.add(*one);
  for (const kernels::RotaryTable& table : p.rotary) {
    memory.add(table.cosine);
    memory.add(table.sine);
  }
  HeldMemory dense;
  dense.add(p.work.projection.dense);
  return {.activations = memory.bytes(), .dense_copy = dense.bytes(), .logits = p.work.head.logits_bytes};
}

void Decoder::reset_magnitudes() {
  const c10::NoGradGuard no_graph;
  for (const auto& layer : layers()) {
    layer->open({});
    layer->reset_magnitudes(parts_->work.projection);
    layer->close({});
  }
}

}  // namespace lockstep::model
