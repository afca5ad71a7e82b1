// From settings and free memory to a form, and from the form to buffers.
#include "rank/train/gradients.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "config/config.h"
#include "rank/train/device_memory.h"
#include "rank/train/keep.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kMostAdditions = parallel::GradientSums::kMostAdditions;
// With this many micro-batches a step, and the output matrix in few chunks, no gradient is added to too often.
constexpr std::int64_t kFewMicroBatches = 8;

// Chunks of logits a micro-step: so many additions to the output matrix's gradient, and one more where that is the embedding's too.
std::int64_t most_head_chunks(GradientForm form, std::int64_t micro_batches) {
  switch (form) {
    case GradientForm::f32: return std::numeric_limits<std::int64_t>::max();
    case GradientForm::once: return kMostAdditions - 1;
    case GradientForm::flushed: return (micro_batches <= kFewMicroBatches ? kMostAdditions / micro_batches : kMostAdditions / 2) - 1;
  }
  throw base::Bug("gradients of a form that has no name");
}

// The form with the fewest bytes. Adapters have few gradients, and steps of many micro-batches: f32 whatever else.
GradientForm narrowest_form(const MemoryQuestion& question, const parallel::Replica& replica) {
  if (question.config.lora.enabled || replica.units.front()->weights().scalar_type() == at::kFloat) return GradientForm::f32;
  return question.batch.gradient_accumulation == 1 ? GradientForm::once : GradientForm::flushed;
}

// Units whose sums are best on the device come first: the output matrix's is flushed most often.
std::vector<model::Unit*> by_flushes(const parallel::Replica& replica, const model::Unit* often) {
  std::vector<model::Unit*> units = replica.trained_in_backward_order();
  std::stable_partition(units.begin(), units.end(), [&](const model::Unit* unit) { return unit == often; });
  return units;
}

}  // namespace

MemoryPlan plan_memory(const MemoryQuestion& question, const parallel::Replica& replica, const std::function<bool(bool)>& agree) {
  const auto& [config, batch, time, ranks, free_bytes] = question;
  const at::Tensor &gradients = replica.gradients, &weights = replica.units.front()->weights();
  const std::int64_t element_size = weights.element_size();
  const model::MicroBatch micro_batch{batch.batch_size, time};
  const std::int64_t unclaimed = free_bytes.value_or(free_memory_bytes(gradients.device())) + std::int64_t(gradients.nbytes());
  const auto room_beside = [&](std::int64_t gradient_size) {
    return unclaimed - gradient_size * gradients.numel() - reserved_bytes(config, micro_batch.rows(), element_size, ranks);
  };
  const auto keep_beside = [&](std::int64_t gradient_size) {
    return keep_for(config, micro_batch, element_size, room_beside(gradient_size));
  };
  const auto left_beside = [&](std::int64_t gradient_size, const std::vector<model::Keep>& keep) {
    return room_beside(gradient_size) - model::needed_bytes(config.model, micro_batch, element_size, keep);
  };

  const GradientForm narrowest = narrowest_form(question, replica);
  if (narrowest == GradientForm::f32) return {GradientForm::f32, keep_beside(sizeof(float))};
  const std::vector<model::Keep> keep = keep_beside(element_size);
  if (narrowest == GradientForm::once) return {GradientForm::once, keep};
  const bool fits = keep_beside(sizeof(float)) == keep && left_beside(sizeof(float), keep) >= 0;
  if (agree(fits)) return {GradientForm::f32, keep};
  return {GradientForm::flushed, keep, std::max<std::int64_t>(left_beside(element_size, keep), 0)};
}

MemoryPlan least_memory(const MemoryQuestion& question, const parallel::Replica& replica) {
  return {narrowest_form(question, replica), std::vector(static_cast<std::size_t>(question.config.model.num_layers), model::Keep::input)};
}

std::unique_ptr<parallel::GradientSums> apply(const MemoryPlan& plan, const MemoryQuestion& question, parallel::Replica& replica,
                                              model::Decoder& model) {
  const std::int64_t micro_batches = question.batch.gradient_accumulation;
  parallel::hold_gradients(replica, plan.gradients == GradientForm::f32 ? at::kFloat : replica.units.front()->weights().scalar_type());
  model.set_keep(plan.keep, question.config.trainer.offload_checkpoints);
  model.set_most_head_chunks(most_head_chunks(plan.gradients, micro_batches));
  if (plan.gradients != GradientForm::flushed || micro_batches <= kFewMicroBatches) return nullptr;
  return std::make_unique<parallel::GradientSums>(by_flushes(replica, model.head_owner()), plan.room_for_sums);
}

std::string describe(const MemoryPlan& plan, const config::RunConfig& config, const parallel::GradientSums* sums) {
  if (plan.gradients == GradientForm::f32) return "f32";
  const std::string_view dtype = config::name_of(config.model.dtype);
  if (plan.gradients == GradientForm::once) return fmt::format("{}, one micro-batch a step", dtype);
  if (sums == nullptr) return fmt::format("{}, at most {} additions a step", dtype, kMostAdditions);
  return fmt::format("{}, flushed into f32 every {} additions ({})", dtype, kMostAdditions,
                     sums->on_device() ? "on the device" : "on the host");
}

}  // namespace lockstep::train
