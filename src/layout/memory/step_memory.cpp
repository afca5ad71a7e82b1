// From settings and free memory to a form of gradients and a policy for every block.
#include "layout/memory/step_memory.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "layout/adapters/adapters.h"
#include "layout/fp8.h"
#include "layout/unit.h"

namespace lockstep::layout {
namespace {

std::int64_t fp8_bytes(const config::RunConfig& config, std::int64_t rows) {
  return config.trainer.fp8 ? layout::fp8_bytes(config.model, rows) : 0;
}

// Logits are gone when blocks need their working memory again: what they take beyond it.
std::int64_t bytes_beyond_working(const StepQuestion& question, std::int64_t allowed, GradientForm form) {
  const std::int64_t rows = question.micro_batch.rows();
  const ActivationBytes bytes = activation_bytes(question.config.model, bytes_of(question.config.model.dtype));
  const std::int64_t chunk = logits_bytes(question.config, rows, allowed, form, question.micro_batches);
  return std::max<std::int64_t>(rows * bytes.head + chunk - rows * bytes.working, 0);
}

}  // namespace

GradientForm narrowest_form(const config::RunConfig& config, std::int64_t micro_batches) {
  if (config.lora.enabled || config.model.dtype == config::DType::f32) return GradientForm::f32;
  return micro_batches == 1 ? GradientForm::once : GradientForm::flushed;
}

GradientForm widest_form(const config::RunConfig& config, std::int64_t micro_batches) {
  return narrowest_form(config, micro_batches) == GradientForm::once ? GradientForm::once : GradientForm::f32;
}

std::int64_t wire_bytes(const config::RunConfig& config, GradientForm form) {
  switch (config.parallel.reduce_dtype) {
    case config::ReduceDType::automatic: return bytes_of(config.model.dtype);
    case config::ReduceDType::f32: return 4;
    case config::ReduceDType::gradient: return bytes_of(form, config.model.dtype);
  }
  throw base::Bug("a type of the wire that has no name");
}

std::int64_t bytes_of(GradientForm form, config::DType weights) { return form == GradientForm::f32 ? 4 : bytes_of(weights); }

std::int64_t bytes_of_sums(GradientForm form, config::DType weights) { return form == GradientForm::once ? bytes_of(weights) : 4; }

std::int64_t most_head_chunks(GradientForm form, std::int64_t micro_batches) {
  switch (form) {
    case GradientForm::f32: return std::numeric_limits<std::int64_t>::max();
    case GradientForm::once: return most_additions - 1;
    case GradientForm::flushed: return (micro_batches <= few_micro_batches ? most_additions / micro_batches : most_additions / 2) - 1;
  }
  throw base::Bug("gradients of a form that has no name");
}

std::int64_t logits_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t allowed, GradientForm form,
                          std::int64_t micro_batches) {
  const std::int64_t vocab = config.model.vocab_size, element = bytes_of(config.model.dtype);
  return logits_chunk_rows(rows, vocab, element, allowed, most_head_chunks(form, micro_batches)) * vocab * element;
}

StepMemory plan_step_memory(const StepQuestion& question, const std::function<bool(bool)>& agree) {
  const auto& [config, micro_batch, micro_batches, ranks, elements, sum_elements, unclaimed, exchange, logits] = question;
  const GradientForm narrowest = narrowest_form(config, micro_batches);
  const std::int64_t element_size = bytes_of(config.model.dtype), sums = sum_elements * bytes_of_sums(narrowest, config.model.dtype),
                     reserved = reserved_bytes(config, micro_batch.rows(), ranks) + exchange + sums;
  const auto room_beside = [&, elements = elements, unclaimed = unclaimed](std::int64_t gradient_size) {
    return unclaimed - gradient_size * elements - reserved;
  };
  const auto beyond_working = [&](std::int64_t allowed) { return bytes_beyond_working(question, allowed, narrowest); };
  const auto recompute_beside = [&, &config = config, &micro_batch = micro_batch, &logits = logits](std::int64_t gradient_size) {
    const std::int64_t room = room_beside(gradient_size);
    std::vector<Recompute> policies = recompute_for(config, micro_batch, element_size, room - beyond_working(logits.whole));
    if (config.trainer.recompute != Recompute::automatic || logits.beside(policies) == logits.whole) return policies;
    // No block keeps everything, so that chunks are small.
    policies = recompute_for(config, micro_batch, element_size, room - beyond_working(logits.lean));
    std::ranges::replace(policies, Recompute::none, Recompute::norms);
    return policies;
  };
  const auto left_beside = [&, &config = config, &micro_batch = micro_batch, &logits = logits](std::int64_t gradient_size,
                                                                                               const std::vector<Recompute>& policies) {
    return room_beside(gradient_size) - needed_bytes(config.model, micro_batch, element_size, policies) -
           beyond_working(logits.beside(policies));
  };

  if (narrowest == GradientForm::f32) return {GradientForm::f32, recompute_beside(sizeof(float))};
  const std::vector<Recompute> policies = recompute_beside(element_size);
  if (narrowest == GradientForm::once) return {GradientForm::once, policies};
  const bool fits = recompute_beside(sizeof(float)) == policies && left_beside(sizeof(float), policies) >= 0;
  if (agree(fits)) return {GradientForm::f32, policies};
  return {GradientForm::flushed, policies, std::max<std::int64_t>(left_beside(element_size, policies), 0)};
}

StepMemory least_step_memory(const config::RunConfig& config, std::int64_t micro_batches) {
  return {narrowest_form(config, micro_batches), std::vector(static_cast<std::size_t>(config.model.num_layers), Recompute::blocks)};
}

std::int64_t reserved_bytes(const config::RunConfig& config, std::int64_t rows, int ranks) {
  return std::min(ranks - 1, 1) * ranks_reserve_bytes + fp8_bytes(config, rows) +
         adapter_bytes(config.model, config.lora, rows, bytes_of(config.model.dtype));
}

std::int64_t evaluation_bytes(const config::RunConfig& config, std::int64_t rows) {
  return fp8_bytes(config, rows) + evaluation_bytes(config.model, rows, bytes_of(config.model.dtype));
}

}  // namespace lockstep::layout
