// Adds up a rank's buffers.
#include "layout/memory/memory.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/error.h"
#include "layout/adapters/adapters.h"
#include "layout/fp8.h"
#include "layout/memory/shards.h"

namespace lockstep::layout {
namespace {

constexpr std::int64_t kPromptTokens = 64;  // taken for a sample's prompt, which nobody has counted yet

bool any(const std::vector<Recompute>& policies, auto holds) { return std::any_of(policies.begin(), policies.end(), holds); }

// Thin products of adapters: a block's own where its policy keeps them, else in the place that all blocks share.
std::int64_t low_rank_bytes(const config::RunConfig& config, const std::vector<Recompute>& policies) {
  std::int64_t own = 0;
  std::vector<std::int64_t> shared(kBlockMatrices, 0);
  for (std::size_t layer = 0; layer < policies.size(); ++layer) {
    for (const AdaptedMatrix& adapted : adapted_matrices(config.model, config.lora, std::int64_t(layer))) {
      const Recompute policy = policies[layer];
      const bool given_up = adapted.matrix == BlockLeaves::qkv    ? policy == Recompute::qkv || policy == Recompute::blocks
                            : adapted.matrix == BlockLeaves::down ? false
                                                                  : policy == Recompute::blocks;
      std::int64_t& place = shared[adapted.matrix];
      if (given_up)
        place = std::max(place, adapted.low_width());
      else
        own += adapted.low_width();
    }
  }
  for (const std::int64_t width : shared) own += width;
  return own * bytes_of(config.model.dtype);
}

// For one row: what blocks keep and share, the stream's gradient, and the head's two numbers.
std::int64_t row_bytes(const config::RunConfig& config, const std::vector<Recompute>& policies) {
  const Dims d(config.model);
  const std::int64_t element = bytes_of(config.model.dtype);
  const ActivationBytes bytes = activation_bytes(config.model, element);
  std::int64_t row = 0, shared = 0;
  for (const Recompute policy : policies) {
    row += bytes.kept(policy);
    shared = std::max(shared, bytes.shared(policy));
  }
  // Outputs of norms have a place of their own, which the head uses too; SwiGLU's and normed heads' is there where a block gave them up.
  const bool gives_up = any(policies, [](Recompute policy) { return policy != Recompute::none; });
  if (gives_up) shared += bytes.norms - (d.norms_behind ? 0 : 2 * element * d.hidden);
  const std::int64_t norm = element * d.hidden, branch = element * d.hidden, stream_gradient = element * d.hidden;
  const bool apart = d.q_width() + d.qkv_width() > 2 * d.intermediate;  // attention's gradients do not fit where gate and up were
  const std::int64_t attention_gradients = apart ? element * (d.q_width() + d.qkv_width()) : 0;
  const std::int64_t head = 2 * f32_bytes;  // a norm's scale and a loss
  return row + shared + norm + branch + stream_gradient + attention_gradients + head + low_rank_bytes(config, policies);
}

std::int64_t rotary_bytes(const Dims& d, std::int64_t time) {
  return 2 * f32_bytes * std::max(time, std::min(2 * time, d.max_time)) * (d.head_dim / 2);
}

std::int64_t sample_bytes(const config::RunConfig& config, int ranks) {
  if (config.monitor.sample_tokens == 0) return 0;
  const auto prompts = std::max<std::int64_t>(1, std::int64_t(config.monitor.sample_prompts.size()));
  const std::int64_t tokens = std::min(Dims(config.model).max_time, kPromptTokens + config.monitor.sample_tokens);
  const std::int64_t writers =
      sharing_ranks(config, ranks) == 1 ? ranks : 1;  // ranks that hold layers between them write all texts together
  return kv_cache_bytes(config.model, base::ceil_div(prompts, writers), tokens);
}

std::int64_t time_of(const config::RunConfig& config) {
  return config.data.seq_len > 0 ? config.data.seq_len : Dims(config.model).max_time;
}

// Inputs of blocks that have left the device, for one row. The first block's is the embedding's output, which stays.
std::int64_t offloaded_row_bytes(const config::RunConfig& config, const std::vector<Recompute>& policies) {
  if (!config.trainer.offload_checkpoints) return 0;
  const std::int64_t inputs = std::count(policies.begin() + 1, policies.end(), Recompute::blocks);
  return std::max<std::int64_t>(inputs - offload_buffers, 0) * Dims(config.model).hidden * bytes_of(config.model.dtype);
}

// Gradients of another type than travels are copied, so many buckets at most at a time.
std::int64_t bucket_bytes(const config::RunConfig& config, GradientForm form, std::int64_t elements) {
  constexpr std::int64_t under_way = 4;
  const std::int64_t wire = wire_bytes(config, form);
  if (wire == bytes_of(form, config.model.dtype)) return 0;
  const auto bucket = std::int64_t(config.parallel.bucket_cap_mb * 1024 * 1024);
  return std::min(under_way * bucket, elements * wire);
}

// Buffers of the groups that move numbers: gathers and reductions have one each, and so have replicas of shards.
std::int64_t communicator_bytes(const config::RunConfig& config, int sharing, bool on_gpu) {
  const int groups = sharing == 1 ? 1 : config.parallel.replicate > 1 ? 3 : 2;
  return on_gpu ? groups * ranks_reserve_bytes : 0;
}

// Of units that are cut, beside what is reserved wherever there are ranks.
std::int64_t beside_reserve(const config::RunConfig& config, int sharing, bool on_gpu) {
  return communicator_bytes(config, sharing, on_gpu) - communicator_bytes(config, 1, on_gpu);
}

// A unit on its way: a copy where another type travels, what comes from the others, the sum of this rank's share, and a copy of shares on
// their way between replicas where they are of another type.
std::int64_t reduction_bytes(const config::RunConfig& config, GradientForm form, const ShardedMemory& shards, int sharing) {
  const std::int64_t wire = wire_bytes(config, form), copies = wire == bytes_of(form, config.model.dtype) ? 1 : 2;
  const std::int64_t staged = wire == bytes_of_sums(form, config.model.dtype) ? 0 : shards.shares_between_replicas * wire;
  return shards.in_flight * wire * copies + shards.in_flight / sharing * wire + staged;
}

// Of a unit whose matrices have owners: what is taken off them, and the same as it comes from every owner.
std::int64_t owned_update_bytes(const ShardedMemory& shards, int sharing) {
  return 2 * f32_bytes * shards.by_matrix + f32_bytes * shards.by_matrix / sharing;
}

std::int64_t exchange_bytes(const config::RunConfig& config, GradientForm form, const ShardedMemory& shards, int sharing) {
  return std::max(reduction_bytes(config, form, shards, sharing), owned_update_bytes(shards, sharing));
}

// Weights, masters, states: what is there before gradients and activations are planned.
std::vector<PartBytes> standing_parts(const std::vector<HeldUnit>& units, const config::RunConfig& config) {
  std::int64_t weights = 0, frozen = 0, quantized = 0, adapters = 0, masters = 0, states = 0;
  for (const HeldUnit& unit : units) {
    const Holding& h = unit.holding;
    const std::int64_t bytes = unit.flat.elements * bytes_of(h.dtype);
    (!h.trained ? frozen : config.lora.enabled ? adapters : weights) += bytes;
    if (h.trained && h.master && h.dtype != config::DType::f32) masters += f32_bytes * unit.flat.elements;
    states += state_bytes(unit, config.trainer.optimizer);
    for (const LeafSpec& leaf : unit.spec.leaves) {
      if (!is_quantized(leaf, h)) continue;
      for (const Piece& piece : leaf.pieces) quantized += quantized_bytes(piece, h.quantization, h.double_quant);
    }
  }
  return {{Part::weights, weights},   {Part::frozen, frozen},   {Part::quantized, quantized},
          {Part::adapters, adapters}, {Part::masters, masters}, {Part::states, states}};
}

}  // namespace

Quantization quantization_of(const config::ModelConfig& model) {
  if (model.load_in_4bit) return Quantization::nf4;
  return model.load_in_8bit ? Quantization::int8 : Quantization::none;
}

Holding adapter_holding(const config::RunConfig& config) {
  return {.dtype = config.model.dtype, .trained = true, .master = config.trainer.optimizer_states == config::StateDType::f32};
}

Holding model_holding(const config::RunConfig& config) {
  Holding holding = adapter_holding(config);
  if (!config.lora.enabled) return holding;
  holding.trained = false;
  holding.quantization = quantization_of(config.model);
  holding.double_quant = config.model.double_quant;
  return holding;
}

std::vector<HeldUnit> held_units(const config::RunConfig& config) {
  std::vector<HeldUnit> units;
  const auto add = [&](UnitSpec spec, const Holding& holding) {
    FlatLayout flat = flat_layout(spec, holding);
    units.push_back({std::move(spec), holding, std::move(flat)});
  };
  for (UnitSpec& spec : decoder_units(config.model)) add(std::move(spec), model_holding(config));
  if (!config.lora.enabled) return units;
  for (std::optional<UnitSpec>& spec : adapter_units(config.model, config.lora)) {
    if (spec) add(std::move(*spec), adapter_holding(config));
  }
  return units;
}

std::int64_t kv_cache_bytes(const config::ModelConfig& model, std::int64_t sequences, std::int64_t tokens) {
  const Dims d(model);
  return 2 * d.layers * sequences * round_up(tokens, kv_cache_step) * d.kv_width() * bytes_of(model.dtype);
}

std::string_view name_of(Part part) {
  switch (part) {
    case Part::weights: return "weights";
    case Part::frozen: return "frozen weights";
    case Part::quantized: return "quantized weights";
    case Part::adapters: return "adapters";
    case Part::masters: return "master weights";
    case Part::gradients: return "gradients";
    case Part::gradient_sums: return "gradient sums";
    case Part::states: return "optimizer states";
    case Part::slots: return "slots";
    case Part::activations: return "activations";
    case Part::dense_copy: return "dense copy";
    case Part::logits: return "logits";
    case Part::adapter_work: return "adapter work";
    case Part::fp8: return "fp8 copies";
    case Part::communication: return "communication";
    case Part::samples: return "samples";
    case Part::communicators: return "communicators";
    case Part::reserve: return "reserve";
  }
  throw base::Bug("a part that has no name");
}

std::int64_t RankMemory::of(Part part) const {
  for (const PartBytes& one : parts)
    if (one.part == part) return one.bytes;
  return 0;
}

void RankMemory::add_to(Part part, std::int64_t bytes) {
  for (PartBytes& one : parts) {
    if (one.part != part) continue;
    one.bytes += bytes;
    return;
  }
  parts.push_back({part, bytes});
}

std::int64_t RankMemory::tensors() const { return total() - of(Part::reserve) - of(Part::communicators); }

std::int64_t RankMemory::total() const {
  std::int64_t bytes = -std::min(of(Part::logits), of(Part::communication));
  for (const PartBytes& one : parts) bytes += one.bytes;
  return bytes;
}

bool trains_output_matrix(const std::vector<HeldUnit>& units, const config::RunConfig& config) {
  const Role matrix = config.model.tie_embeddings && !config.lora.enabled ? Role::token_embedding : Role::output_head;
  for (const HeldUnit& unit : units)
    if (unit.holding.trained && std::ranges::any_of(unit.spec.leaves, [&](const LeafSpec& leaf) { return leaf.role == matrix; }))
      return true;
  return false;
}

std::int64_t beside_steps_bytes(const config::RunConfig& given, int ranks) {
  config::RunConfig config = given;
  config.model = with_defaults(config.model);
  return sample_bytes(config, ranks) + rotary_bytes(Dims(config.model), time_of(config));
}

std::int64_t exchange_bytes(const config::RunConfig& config, int ranks, bool on_gpu) {
  const int sharing = sharing_ranks(config, ranks);
  if (sharing == 1) return 0;
  const ShardedMemory shards = sharded_memory(held_units(config), config, sharing);
  return exchange_bytes(config, GradientForm::f32, shards, sharing) + beside_reserve(config, sharing, on_gpu);
}

RankMemory rank_memory(const config::RunConfig& given, const config::BatchPlan& batch, const MemoryWish& wish) {
  config::RunConfig config = given;
  config.model = with_defaults(config.model);
  const Dims d(config.model);
  const std::vector<HeldUnit> units = held_units(config);
  const std::int64_t element = bytes_of(config.model.dtype), time = time_of(config);
  const MicroBatch micro_batch{batch.batch_size, time};
  const std::int64_t rows = micro_batch.rows(), micro_batches = batch.gradient_accumulation;

  RankMemory memory;
  const int sharing = sharing_ranks(config, wish.ranks);
  const ShardedMemory shards = sharing > 1 ? sharded_memory(units, config, sharing) : ShardedMemory{};
  memory.parts = sharing > 1 ? shards.parts : standing_parts(units, config);
  std::int64_t gradient_elements = shards.gradient_elements;
  if (sharing == 1)
    for (const HeldUnit& unit : units) gradient_elements += unit.holding.trained ? unit.flat.elements : 0;
  const LogitsRoom logits = logits_room(wish.on_gpu, trains_output_matrix(units, config), wish.device_bytes);
  constexpr std::int64_t plenty = std::int64_t{1} << 60;
  const std::int64_t unclaimed = wish.device_bytes ? *wish.device_bytes - memory.total() - beside_steps_bytes(config, wish.ranks) : plenty;
  const auto exchange = [&](GradientForm form) {
    return sharing > 1 ? exchange_bytes(config, form, shards, sharing) : bucket_bytes(config, form, gradient_elements);
  };
  memory.step =
      plan_step_memory({.config = config,
                        .micro_batch = micro_batch,
                        .micro_batches = micro_batches,
                        .ranks = wish.ranks,
                        .gradient_elements = gradient_elements,
                        .sum_elements = shards.sum_elements,
                        .unclaimed_bytes = unclaimed,
                        .exchange_bytes = sharing > 1 ? exchange(GradientForm::f32) + beside_reserve(config, sharing, wish.on_gpu) : 0,
                        .logits = logits},
                       [](bool fits) { return fits; });

  const GradientForm form = memory.step.gradients;
  const auto add = [&](Part part, std::int64_t bytes, bool exact = true) { memory.parts.push_back({part, bytes, exact}); };
  add(Part::gradients, (gradient_elements - shards.of_them_in_slots) * bytes_of(form, config.model.dtype) +
                           shards.sum_elements * bytes_of_sums(form, config.model.dtype));
  memory.add_to(Part::slots, shards.of_them_in_slots * bytes_of(form, config.model.dtype));
  if (needs_sums(form, micro_batches) && shards.sum_elements == 0)
    add(Part::gradient_sums, std::min(f32_bytes * gradient_elements, memory.step.room_for_sums), false);
  memory.offloaded_bytes = wish.on_gpu ? rows * offloaded_row_bytes(config, memory.step.recompute) : 0;
  add(Part::activations, rows * row_bytes(config, memory.step.recompute) + rotary_bytes(d, time) - memory.offloaded_bytes);
  add(Part::dense_copy, config.lora.enabled ? dense_buffer_bytes(config.model, element) : 0);
  add(Part::logits, logits_bytes(config, rows, logits.beside(memory.step.recompute), form, micro_batches), /*exact=*/!wish.on_gpu);
  std::int64_t kept_low = 0;
  for (std::int64_t layer = 0; layer < d.layers; ++layer)
    for (const AdaptedMatrix& adapted : adapted_matrices(config.model, config.lora, layer)) kept_low += adapted.low_width();
  add(Part::adapter_work, adapter_bytes(config.model, config.lora, rows, element) - rows * element * kept_low, false);
  if (config.trainer.fp8) add(Part::fp8, fp8_bytes(config.model, rows), false);
  if (wish.ranks > 1) {
    add(Part::communication, exchange(form), false);
    add(Part::communicators, communicator_bytes(config, sharing, wish.on_gpu), false);
  }
  add(Part::samples, sample_bytes(config, wish.ranks), false);
  if (wish.on_gpu) add(Part::reserve, activation_reserve_bytes, false);
  std::erase_if(memory.parts, [](const PartBytes& one) { return one.bytes == 0; });
  std::stable_sort(memory.parts.begin(), memory.parts.end(), [](const PartBytes& a, const PartBytes& b) { return a.part < b.part; });
  return memory;
}

}  // namespace lockstep::layout
