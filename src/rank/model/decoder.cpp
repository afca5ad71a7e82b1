// The decoder: embedding, layers, head, and the loop over them in both directions.
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "rank/kernels/fp8.h"
#include "rank/kernels/progress.h"
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
  layout::LargestMatrix largest;
  std::int64_t window;
  StoredUnit embedding;  // the one that is trained whole, where there is one beside the frozen one
  std::vector<std::unique_ptr<Layer>> layers;
  Head head;
  Workspace work;       // of training and evaluation in turn: buffers are made anew where their shapes differ
  Workspace text_work;  // of decode(), whose shapes always differ
  std::vector<Flight> flights;
  std::vector<std::pair<std::string, std::string>> range_names;  // "block 3 forward", "block 3 backward"
  at::Tensor dstream;                                            // [rows, hidden]
  const at::Tensor frequencies;
  // Grows with the longest sequence seen: a model's own limit may be far beyond. Shorter ones stay, because a recorded step reads them.
  std::vector<kernels::RotaryTable> rotary;
  std::shared_ptr<kernels::Progress> progress;  // null: nobody looks
  std::vector<std::size_t> offloaded;           // layers whose inputs wait in host memory, in order
  bool without_plan = false;                    // of packed attention, see Segments

  Parts(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store)
      : dims(config),
        largest(layout::largest_matrix(config)),
        window(config.sliding_window),
        embedding(adapters_of(store, 0).value_or(StoredUnit(store, 0))),
        head(make_head(store)),
        frequencies(inverse_frequencies(dims.head_dim, dims.rope_theta, config.rope_scaling)) {
    for (std::int64_t i = 0; i < dims.layers; ++i) {
      const auto unit = std::size_t(i) + 1;
      if (dims.norms_behind)
        layers.push_back(std::make_unique<PostNormBlock>(config, dims, StoredUnit(store, unit), adapters_of(store, unit), lora, i));
      else
        layers.push_back(std::make_unique<Block>(config, dims, StoredUnit(store, unit), adapters_of(store, unit), lora, i));
      range_names.emplace_back(fmt::format("block {} forward", i), fmt::format("block {} backward", i));
    }
    set_flights(1);
  }

  Head make_head(Store& store) const {
    const auto last = std::size_t(dims.layers) + 1;
    const std::optional<StoredUnit> whole = adapters_of(store, last);
    const bool shared = dims.tied && !whole && !adapters_of(store, 0);
    return Head(dims, StoredUnit(store, last), whole ? whole : dims.tied ? std::optional(StoredUnit(store, 0)) : std::nullopt, shared);
  }

  at::Device device() const { return embedding.options().device(); }

  void set_flights(std::size_t count) {
    flights.resize(count);
    forget_activations();
  }

  void forget_activations() {
    for (Flight& flight : flights) {
      flight = {};
      for (const auto& layer : layers) flight.layers.push_back(layer->make_kept());
      if (!offloaded.empty()) flight.offload.emplace(device());
    }
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

  void mark_block() const {
    if (progress) progress->mark();
  }

  at::Tensor embed(const at::Tensor& tokens, at::Tensor& out, const Pass& pass) {
    embedding.open(pass);
    fit(out, {tokens.numel(), dims.hidden}, embedding.options());
    kernels::embedding_forward(tokens, embedding.weight(kEmbeddingWeight), out);
    embedding.close(pass);
    return out;
  }

  ResidualStream evaluate(const Input& input) {
    Flight flight;
    begin(flight, input, {});
    flight.dropout = {};
    const Pass pass{Pass::Direction::forward};
    ResidualStream stream{embed(input.tokens, flight.embedded, pass), {}};
    for (const auto& layer : layers) {
      layer->open(pass);
      stream = layer->forward(stream, flight, nullptr);
      layer->close(pass);
    }
    return stream;
  }

  // Lets go of what belongs to others; a flight's own buffers stay for the next.
  static void land(Flight& flight) {
    flight.tokens = flight.targets = flight.positions = at::Tensor();
    flight.segments = {};
    flight.dropout = {};
    flight.end = {};
  }

  // The last layer's output lies in buffers that all flights share.
  void park(Flight& flight) const {
    if (flights.size() == 1) return;
    for (const auto part : {&ResidualStream::residual, &ResidualStream::delta}) {
      if (!(flight.end.*part).defined()) continue;
      fit(flight.parked.*part, (flight.end.*part).sizes(), (flight.end.*part).options()).copy_(flight.end.*part);
      flight.end.*part = flight.parked.*part;
    }
  }
};

Decoder::Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store) {
  parts_ = std::make_unique<Parts>(config, lora, store);
}

Decoder::Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, Recompute recompute)
    : Decoder(config, units, config::LoraConfig{}, {}) {
  set_recompute(std::vector<Recompute>(parts_->layers.size(), recompute));
}

Decoder::Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, const config::LoraConfig& lora,
                 std::vector<Unit*> adapters)
    : own_store_(std::make_unique<WholeStore>(units, std::move(adapters))) {
  base::check(std::int64_t(units.size()) == Dims(config).layers + 2, "a decoder has an embedding, its blocks and a head");
  parts_ = std::make_unique<Parts>(config, lora, *own_store_);
}

Decoder::~Decoder() = default;

void Decoder::set_flights(std::size_t count) {
  base::check(count >= 1, "there is a flight at least");
  parts_->set_flights(count);
}

void Decoder::set_recompute(const std::vector<Recompute>& policies, bool offload) {
  auto& p = *parts_;
  base::check(policies.size() == p.layers.size(), "one policy per layer");
  p.offloaded.clear();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    p.layers[i]->set_recompute(policies[i]);
    // The first layer's input is the embedding's output.
    if (offload && policies[i] == Recompute::blocks && i > 0 && !p.device().is_cpu()) p.offloaded.push_back(i);
  }
  p.forget_activations();
  p.head.set_lean(std::find(policies.begin(), policies.end(), Recompute::none) == policies.end());
}

void Decoder::release_buffers() {
  auto& p = *parts_;
  const kernels::Fp8Table* fp8 = p.work.projection.fp8 ? &p.work.projection.fp8->table() : nullptr;
  const HeadWork counted{.additions = p.work.head.additions, .logits_bytes = p.work.head.logits_bytes};
  p.forget_activations();
  p.text_work = {};
  p.work = {.head = counted};
  if (fp8) use_fp8(*fp8);
  p.dstream = at::Tensor();
}

void Decoder::use_fp8() { use_fp8(kernels::fp8_table(parts_->device())); }

void Decoder::use_fp8(const kernels::Fp8Table& table) {
  base::check(parts_->embedding.options().dtype() == at::kBFloat16, "8-bit products are for bf16 models");
  parts_->work.projection.fp8.emplace(parts_->device(), table);
}

std::int64_t Decoder::head_additions() const { return parts_->work.head.additions; }
void Decoder::set_most_head_chunks(std::int64_t most) { parts_->head.set_most_chunks(most); }
std::optional<std::size_t> Decoder::head_owner() const {
  const StoredUnit& owner = parts_->head.owner();
  return owner.trained() ? std::optional(owner.index()) : std::nullopt;
}

void Decoder::mark_blocks(std::shared_ptr<kernels::Progress> progress) { parts_->progress = std::move(progress); }

at::Tensor Decoder::forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale) {
  return forward_backward({.tokens = tokens, .targets = targets}, scale);
}

at::Tensor Decoder::forward_backward(const Input& input, const at::Tensor& scale, const Micro& micro) {
  forward(input, micro);
  return backward(scale);
}

void Decoder::forward(const Input& input, const Micro& micro, std::size_t which) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  Flight& flight = p.flights.at(which);
  p.begin(flight, input, micro);
  const Pass pass{Pass::Direction::forward, micro};
  ResidualStream stream{p.embed(input.tokens, flight.embedded, pass), {}};
  flight.offloaded = 0;
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    LayerKept& kept = *flight.layers[i];
    std::size_t& away = flight.offloaded;
    const bool leaves = away < p.offloaded.size() && p.offloaded[away] == i;
    if (leaves) kept.input() = flight.offload->take(away);
    const TraceRange range(p.range_names[i].first);
    p.layers[i]->open(pass);
    stream = p.layers[i]->forward(stream, flight, &kept);
    p.layers[i]->close(pass);
    p.mark_block();
    if (!leaves) continue;
    flight.offload->store(away, kept.input(), p.offloaded.size());
    ++away;
  }
  flight.end = stream;
  p.park(flight);
}

at::Tensor Decoder::backward(const at::Tensor& scale, std::size_t which) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  Flight& flight = p.flights.at(which);
  const Pass pass{Pass::Direction::backward, flight.micro};
  const at::Tensor& dstream = fit(p.dstream, flight.end.residual.sizes(), flight.end.residual.options());
  const auto loss = [&] {
    const TraceRange range("head and loss");
    p.head.open(pass);
    const at::Tensor sum = p.head.loss_backward(flight.end, flight.targets.reshape({-1}), scale, dstream, p.work);
    p.head.close(pass);
    return sum;
  }();
  for (std::size_t i = p.layers.size(); i-- > 0;) {
    const TraceRange range(p.range_names[i].second);
    LayerKept& kept = *flight.layers[i];
    std::size_t& away = flight.offloaded;
    if (away > 0 && p.offloaded[away - 1] == i) kept.input() = flight.offload->fetch(--away);
    p.layers[i]->open(pass);
    p.layers[i]->backward(dstream, flight, kept, /*further=*/i > 0 || p.embedding.trained());
    p.layers[i]->close(pass);
    p.mark_block();
  }
  if (p.embedding.trained()) {
    const TraceRange range("embedding backward");
    p.embedding.open(pass);
    kernels::embedding_backward(flight.tokens, dstream, p.embedding.gradient(kEmbeddingWeight));
    p.embedding.complete(kEmbeddingWeight);
    p.embedding.close(pass);
  }
  p.land(flight);
  return loss;
}

at::Tensor Decoder::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  return loss_sum({.tokens = tokens, .targets = targets});
}

at::Tensor Decoder::loss_sum(const Input& input) { return score(input).loss; }

Score Decoder::score(const Input& input) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  const ResidualStream stream = p.evaluate(input);
  p.head.open({});
  const Score score = p.head.score(stream, input.targets.reshape({-1}), p.work);
  p.head.close({});
  return score;
}

at::Tensor Decoder::logits(const at::Tensor& tokens) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  const ResidualStream stream = p.evaluate({.tokens = tokens, .targets = {}});
  p.head.open({});
  const at::Tensor logits = p.head.logits(stream, p.text_work);
  p.head.close({});
  return logits.view({tokens.size(0), tokens.size(1), p.dims.vocab});
}

DecodeCache Decoder::make_cache(std::int64_t batch) const {
  std::vector<std::unique_ptr<DecodeState>> layers;
  for (const auto& layer : parts_->layers) layers.push_back(layer->make_decode_state(batch));
  return DecodeCache(parts_->dims, parts_->window, batch, parts_->device(), std::move(layers));
}

at::Tensor Decoder::decode(const at::Tensor& tokens, DecodeCache& cache, std::span<const std::int64_t> counts) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  const Pass pass{Pass::Direction::forward};
  const DecodeStep step = cache.begin(tokens.size(1));
  Flight flight{.time = step.time, .positions = step.positions, .rotary = p.rotary_for(step.span), .work = &p.text_work};
  ResidualStream stream{p.embed(tokens, flight.embedded, pass), {}};
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    p.layers[i]->open(pass);
    stream = p.layers[i]->decode(stream, flight, cache.layer(i), step);
    p.layers[i]->close(pass);
  }
  cache.finish(step, counts);
  p.head.open(pass);
  const at::Tensor logits = p.head.logits(step.time == 1 ? stream : last_rows(stream, step.time, counts), p.text_work);
  p.head.close(pass);
  return logits;
}

Decoder::Held Decoder::held() const {
  const auto& p = *parts_;
  HeldMemory memory;
  for (const Flight& flight : p.flights) {
    for (const auto& kept : flight.layers) kept->add_to(memory);
    for (const at::Tensor* one : {&flight.embedded, &flight.parked.residual, &flight.parked.delta}) memory.add(*one);
  }
  if (p.work.kept) p.work.kept->add_to(memory);
  for (const at::Tensor* one : {&p.work.norm, &p.work.hidden, &p.work.dmixed, &p.work.dqkv, &p.dstream, &p.work.head.rstd,
                                &p.work.head.losses, &p.work.head.correct})
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
  for (const auto& layer : parts_->layers) {
    layer->open({});
    layer->reset_magnitudes(parts_->work.projection);
    layer->close({});
  }
}

}  // namespace lockstep::model
