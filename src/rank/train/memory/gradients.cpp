// Asks the layout for a form, and makes buffers of it.
#include "rank/train/memory/gradients.h"

#include <algorithm>

#include "base/error.h"
#include "config/config.h"
#include "layout/memory/memory.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::train {
namespace {

// Units whose sums are best on the device come first: the output matrix's is flushed most often.
std::vector<model::HeldSlice> by_flushes(const parallel::RankStore& store, std::optional<std::size_t> often) {
  std::vector<model::HeldSlice> slices = store.accumulates();
  std::stable_partition(slices.begin(), slices.end(), [&](const model::HeldSlice& slice) { return slice.unit == often; });
  return slices;
}

layout::LogitsRoom logits_room(const config::RunConfig& config, at::Device device) {
  return layout::logits_room(device.is_cuda(), layout::trains_output_matrix(layout::held_units(config), config),
                             total_memory_bytes(device));
}

}  // namespace

MemoryPlan plan_memory(const MemoryQuestion& question, const parallel::Replica& replica, const std::function<bool(bool)>& agree) {
  const at::Tensor& gradients = replica.gradients.front().memory;
  const std::int64_t elements = replica.gradient_elements(), sum_elements = replica.sum_elements();
  const std::int64_t standing = elements * std::int64_t(gradients.element_size()) + replica.sum_bytes();
  return layout::plan_step_memory({.config = question.config,
                                   .micro_batch = {question.batch.batch_size, question.time},
                                   .micro_batches = question.batch.gradient_accumulation,
                                   .ranks = question.ranks,
                                   .gradient_elements = elements,
                                   .sum_elements = sum_elements,
                                   .unclaimed_bytes = question.free_bytes.value_or(free_memory_bytes(gradients.device())) + standing -
                                                      layout::beside_steps_bytes(question.config, question.ranks),
                                   .exchange_bytes = layout::exchange_bytes(question.config, question.ranks, gradients.is_cuda()),
                                   .logits = logits_room(question.config, gradients.device())},
                                  agree);
}

MemoryPlan least_memory(const MemoryQuestion& question) {
  return layout::least_step_memory(question.config, question.batch.gradient_accumulation);
}

std::unique_ptr<parallel::GradientSums> apply(const MemoryPlan& plan, const MemoryQuestion& question, parallel::Replica& replica,
                                              model::Stage& model) {
  const std::int64_t micro_batches = question.batch.gradient_accumulation;
  const at::ScalarType weights = replica.units.front()->weights().scalar_type();
  parallel::hold_gradients(replica, plan.gradients == GradientForm::f32 ? at::kFloat : weights,
                           plan.gradients == GradientForm::once ? weights : at::kFloat);
  model.set_recompute(plan.recompute, question.config.trainer.offload_checkpoints);
  model.set_most_chunks(layout::most_head_chunks(plan.gradients, micro_batches));
  // Where gradients are cut, every micro-batch's are added to shares in f32: those are the sums.
  if (replica.sum_elements() > 0 || !layout::needs_sums(plan.gradients, micro_batches)) return nullptr;
  return std::make_unique<parallel::GradientSums>(*replica.store, by_flushes(*replica.store, model.often_added()), plan.room_for_sums);
}

std::string describe(const MemoryPlan& plan, const config::RunConfig& config, const parallel::Replica& replica,
                     const parallel::GradientSums* sums) {
  if (plan.gradients == GradientForm::f32) return "f32";
  const std::string_view dtype = config::name_of(config.model.dtype);
  if (plan.gradients == GradientForm::once) return fmt::format("{}, one micro-batch per step", dtype);
  if (replica.sum_elements() > 0) return fmt::format("{} within a micro-batch, shares of their sums in f32", dtype);
  if (sums == nullptr) return fmt::format("{}, at most {} additions per step", dtype, layout::most_additions);
  return fmt::format("{}, flushed into f32 every {} additions ({})", dtype, layout::most_additions,
                     sums->on_device() ? "on the device" : "on the host");
}

}  // namespace lockstep::train
