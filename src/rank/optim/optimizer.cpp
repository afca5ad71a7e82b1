// What all optimizers share: settings, the control numbers of a step, and which stretches of a unit are updated alike.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash/hash64.h"
#include "base/text.h"
#include "rank/kernels/kernels.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

namespace {

at::Tensor control_tensor(const kernels::Control& control, const at::Device& device) {
  auto tensor = at::empty({kernels::kControlNumbers}, at::kDouble);
  static_assert(sizeof(control) == kernels::kControlNumbers * sizeof(double));
  std::memcpy(tensor.data_ptr(), &control, sizeof(control));
  return tensor.to(device);
}

kernels::Control control_of(const at::Tensor& tensor) {
  const auto host = tensor.to(at::kCPU);
  kernels::Control control;
  std::memcpy(&control, host.const_data_ptr(), sizeof(control));
  return control;
}

}  // namespace

Settings settings_for(const config::RunConfig& config, double nominal_tokens) {
  const config::TrainerConfig& trainer = config.trainer;
  const bool f16 = config.model.dtype == config::DType::f16;
  return {.method = trainer.optimizer,
          .beta1 = trainer.beta1,
          .beta2 = trainer.beta2,
          .epsilon = trainer.epsilon,
          .weight_decay = trainer.weight_decay,
          .momentum = trainer.momentum,
          .muon_momentum = trainer.muon_momentum,
          .embedding_rate = trainer.embedding_learning_rate > 0 ? trainer.embedding_learning_rate / trainer.learning_rate : 1,
          .adapter_b_rate = config.lora.b_lr_ratio,
          .max_grad_norm = trainer.max_grad_norm,
          .nominal_tokens = nominal_tokens,
          .dynamic_loss_scale = f16,
          .initial_loss_scale = f16 ? trainer.initial_loss_scale : 1,
          .loss_scale_window = double(trainer.loss_scale_window),
          .seed = trainer.seed};
}

Optimizer::Optimizer(const model::Store& store, const Settings& settings) : store_(store), settings_(settings), squares_(store) {
  base::check(!slices().empty(), "an optimizer has something to update");
  restore_control(0, settings_.initial_loss_scale, 0, 0);
}

void Optimizer::finish_gradients(const at::Tensor& sum_of_squares, const at::Tensor& token_count, const at::Tensor& loss_sum) {
  kernels::finish_gradients(control_, scale_, squares_.by_unit(sum_of_squares.to(at::kDouble)), token_count.to(at::kDouble),
                            loss_sum.to(at::kDouble),
                            {.nominal_tokens = settings_.nominal_tokens,
                             .max_norm = settings_.max_grad_norm,
                             .dynamic_scale = settings_.dynamic_loss_scale,
                             .scale_window = settings_.loss_scale_window});
}

// Slices lie in the order that backward completes them. What the next forward begins with is there first.
void Optimizer::step(double learning_rate, const std::function<void(std::size_t)>& updated) {
  begin_step();
  for (std::size_t i = slices().size(); i-- > 0;) {
    update(i, learning_rate);
    if (updated) updated(slices()[i].unit);
  }
}

StepReport Optimizer::report_of(const at::Tensor& control_on_host) {
  const auto c = control_of(control_on_host);
  return {.gradient_norm = c.gradient_norm,
          .skipped = c.skip != 0,
          .updates = std::int64_t(c.updates),
          .loss_scale = c.loss_scale,
          .skipped_in_a_row = std::int64_t(c.skipped_in_a_row),
          .skipped_total = std::int64_t(c.skipped_total)};
}

StepReport Optimizer::report() const { return report_of(control_); }

std::int64_t Optimizer::good_steps() const { return std::int64_t(control_of(control_).good_steps); }

void Optimizer::restore_control(std::int64_t updates, double loss_scale, std::int64_t good_steps, std::int64_t skipped_total) {
  const auto device = slices().front().weights.device();
  control_ = control_tensor({.gradient_norm = 0,
                             .factor = 0,
                             .skip = 0,
                             .updates = double(updates),
                             .loss_scale = loss_scale,
                             .good_steps = double(good_steps),
                             .skipped_in_a_row = 0,
                             .skipped_total = double(skipped_total)},
                            device);
  scale_ = at::full({}, loss_scale / settings_.nominal_tokens, at::TensorOptions().dtype(at::kFloat)).to(device);
}

double Optimizer::rate_of(const model::LeafSpec& leaf) const {
  switch (leaf.role) {
    case model::Role::inner: return 1;
    case model::Role::token_embedding:
    case model::Role::output_head: return settings_.embedding_rate;
    case model::Role::adapter_b: return settings_.adapter_b_rate;
  }
  throw base::Bug("a role that has no name");
}

std::vector<Optimizer::Stretch> Optimizer::stretches(const model::HeldSlice& slice) const {
  std::vector<Stretch> all;
  const auto& leaves = store_.spec(slice.unit).leaves;
  const layout::FlatLayout& flat = store_.flat(slice.unit);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto leaf_end = i + 1 < leaves.size() ? flat.offsets[i + 1].value() : flat.elements;
    const auto begin = std::max(flat.offsets[i].value() - slice.begin, std::int64_t{0}),
               end = std::min(leaf_end - slice.begin, slice.count);
    if (begin >= end) continue;
    const double rate = rate_of(leaves[i]), decay = leaves[i].decay ? settings_.weight_decay : 0;
    if (all.empty() || all.back().rate != rate || all.back().decay != decay) all.push_back({begin, 0, rate, decay});
    all.back().count = end - all.back().begin;
  }
  return all;
}

std::vector<Optimizer::HeldPiece> Optimizer::held_pieces(const model::HeldSlice& slice) const {
  std::vector<HeldPiece> all;
  const auto& leaves = store_.spec(slice.unit).leaves;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    std::int64_t at = store_.flat(slice.unit).offsets[i].value() - slice.begin;
    for (const model::Piece& piece : leaves[i].pieces) {
      const std::int64_t begin = std::exchange(at, at + piece.elements());
      const std::int64_t from = std::clamp<std::int64_t>(begin, 0, slice.count), to = std::clamp<std::int64_t>(at, from, slice.count);
      all.push_back({.leaf = &leaves[i],
                     .piece = &piece,
                     .begin = from,
                     .count = to - from,
                     .first = std::clamp<std::int64_t>(-begin, 0, piece.elements()),
                     .in_unit = slice.begin + begin,
                     .rate = rate_of(leaves[i]),
                     .decay = leaves[i].decay ? settings_.weight_decay : 0});
    }
  }
  return all;
}

model::NamedSlice Optimizer::named(std::string_view state, const HeldPiece& held, const at::Tensor& numbers) {
  return {fmt::format("{}.{}", state, held.piece->name), held.whole() ? numbers.view(held.piece->shape) : numbers, held.piece->shape,
          held.first};
}

void Optimizer::add_views(std::vector<model::NamedSlice>& views, std::string_view state, const model::HeldSlice& slice,
                          const at::Tensor& flat) const {
  for (const HeldPiece& held : held_pieces(slice)) views.push_back(named(state, held, flat.narrow(0, held.begin, held.count)));
}

std::uint64_t Optimizer::key_of(const model::HeldSlice& slice) const {
  return base::hash64(store_.spec(slice.unit).name, std::uint64_t(settings_.seed) * 0x9e3779b97f4a7c15ull + 0x517cc1b727220a95ull);
}

}  // namespace lockstep::optim
