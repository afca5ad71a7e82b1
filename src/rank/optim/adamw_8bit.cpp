// Which parameters have 8-bit moments, where their blocks lie, and the call for each stretch of them.
#include "rank/optim/adamw_8bit.h"

#include <ATen/ops/zeros.h>

#include "base/ceil_div.h"
#include "base/error.h"

namespace lockstep::optim {

namespace {

static_assert(layout::state_block == kernels::kQuantBlock, "bytes are counted by the same blocks");

std::int64_t blocks_of(std::int64_t count) { return base::ceil_div(count, kernels::kQuantBlock); }

}  // namespace

AdamW8bit::AdamW8bit(const model::Store& store, const Settings& settings) : Optimizer(store, settings) {
  const auto device = slices().front().weights.device();
  first_map_ = kernels::dynamic_map(true, device);
  second_map_ = kernels::dynamic_map(false, device);
  for (const model::HeldSlice& slice : slices()) states_.push_back(state_for(slice));
}

AdamW8bit::State AdamW8bit::state_for(const model::HeldSlice& slice) const {
  State state;
  std::int64_t blocks = 0, small = 0;
  for (const HeldPiece& held : held_pieces(slice)) {
    if (held.count == 0) continue;
    const bool coded = held.piece->elements() >= kSmallest;
    base::check(!coded || held.first % kernels::kQuantBlock == 0, "a shard cuts no block of 8-bit states");
    const Span* last = state.spans.empty() ? nullptr : &state.spans.back();
    const bool joins = last != nullptr && last->coded == coded && last->begin + last->count == held.begin && last->rate == held.rate &&
                       last->decay == held.decay && (!coded || last->count % kernels::kQuantBlock == 0);
    if (joins)
      state.spans.back().count += held.count;
    else
      state.spans.push_back({held.begin, held.count, held.rate, held.decay, coded, coded ? blocks : small});
    (coded ? blocks : small) += coded ? blocks_of(held.count) : held.count;
  }
  const auto zeros = [&](std::int64_t count, at::ScalarType type) { return at::zeros({count}, slice.weights.options().dtype(type)); };
  state.first_codes = zeros(blocks > 0 ? slice.count : 0, at::kByte);
  state.second_codes = zeros(blocks > 0 ? slice.count : 0, at::kByte);
  state.first_scale = zeros(blocks, at::kFloat);
  state.second_scale = zeros(blocks, at::kFloat);
  state.first = zeros(small, at::kFloat);
  state.second = zeros(small, at::kFloat);
  return state;
}

void AdamW8bit::update(std::size_t index, double learning_rate) {
  const model::HeldSlice& slice = slices()[index];
  const State& state = states_[index];
  for (const Span& span : state.spans) {
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, span.begin, span.count); };
    kernels::UpdateBuffers buffers{
        .gradient = part(slice.gradients), .exact = part(slice.exact), .weights = part(slice.weights), .first = {}, .second = {}};
    const kernels::UpdateSettings numbers{.rule = kernels::Rule::adamw,
                                          .rate = learning_rate * span.rate,
                                          .beta1 = settings().beta1,
                                          .beta2 = settings().beta2,
                                          .epsilon = settings().epsilon,
                                          .decay = span.decay,
                                          .key = key_of(slice),
                                          .place = slice.begin + span.begin};
    if (span.coded) {
      const auto scales = [&](const at::Tensor& all) { return all.narrow(0, span.state, blocks_of(span.count)); };
      kernels::adamw_8bit(buffers, {part(state.first_codes), scales(state.first_scale), first_map_},
                          {part(state.second_codes), scales(state.second_scale), second_map_}, control(), numbers);
    } else {
      buffers.first = state.first.narrow(0, span.state, span.count);
      buffers.second = state.second.narrow(0, span.state, span.count);
      kernels::update(buffers, control(), numbers);
    }
  }
}

std::vector<model::NamedSlice> AdamW8bit::named_state() const {
  std::vector<model::NamedSlice> views;
  for (std::size_t i = 0; i < slices().size(); ++i) {
    const State& state = states_[i];
    std::int64_t blocks = 0, small = 0;
    for (const HeldPiece& held : held_pieces(slices()[i])) {
      const auto add = [&](std::string_view kind, const at::Tensor& values) { views.push_back(named(kind, held, values)); };
      const auto add_scales = [&](std::string_view kind, const at::Tensor& scales) {
        views.push_back({fmt::format("{}.{}", kind, held.piece->name),
                         scales.narrow(0, blocks, blocks_of(held.count)),
                         {blocks_of(held.piece->elements())},
                         blocks_of(held.first)});
      };
      if (held.piece->elements() < kSmallest) {
        add("exp_avg", state.first.narrow(0, small, held.count));
        add("exp_avg_sq", state.second.narrow(0, small, held.count));
        small += held.count;
        continue;
      }
      const auto codes = [&](const at::Tensor& all) { return all.narrow(0, all.numel() > 0 ? held.begin : 0, held.count); };
      add("exp_avg", codes(state.first_codes));
      add_scales("exp_avg_scale", state.first_scale);
      add("exp_avg_sq", codes(state.second_codes));
      add_scales("exp_avg_sq_scale", state.second_scale);
      blocks += blocks_of(held.count);
    }
  }
  return views;
}

}  // namespace lockstep::optim
