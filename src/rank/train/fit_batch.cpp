// Tries micro-batches on for size.
#include "rank/model/projection/adapter.h"
#include "rank/train/fit_batch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <new>
#include <utility>

#include "base/error.h"
#include "rank/data/data.h"
#include "layout/recompute.h"
#include "rank/train/device_memory.h"
#include "rank/train/gradients.h"

namespace lockstep::train {
namespace {

// Forward and backward with nothing to train: the gradients that come of it are zero.
bool fits(Run& run, std::int64_t samples) {
  if (run.faults.refuses(samples)) return false;
  const auto options = at::TensorOptions().dtype(at::kLong).device(run.world->device());
  const std::int64_t time = run.dataset.training->seq_len();
  try {
    const at::Tensor tokens = at::zeros({samples, time}, options), targets = at::full({samples, time}, data::untrained, options);
    const at::Tensor keys = model::adapters_drop(run.config.lora) ? at::zeros({samples}, options) : at::Tensor();
    run.model->forward_backward({.tokens = tokens, .targets = targets, .keys = keys}, run.optimizer->scale()).item<float>();
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void use(Run& run, const MemoryQuestion& question, const MemoryPlan& plan) {
  run.gradient_sums = apply(plan, question, run.replica, *run.model);
  run.gradient_form = describe(plan, run.config, run.gradient_sums.get());
  run.recompute = model::describe(plan.recompute);
}

MemoryQuestion question_of(const Run& run) { return {run.config, run.batch, run.dataset.training->seq_len(), run.mesh->loss().size()}; }

void release_memory(Run& run) {
  run.model->release_buffers();
  empty_cache(run.world->device());
}

}  // namespace

void choose_memory(const comm::Group& group, Run& run) {
  const auto agree = [&](bool fits) { return group.all_agree(fits, "whether f32 gradients fit"); };
  use(run, question_of(run), plan_memory(question_of(run), run.replica, agree));
}

std::string fit_batch_size(const comm::Group& group, Run& run) {
  if (!run.config.trainer.auto_find_batch_size) return "";
  const std::int64_t asked = run.batch.batch_size;
  bool may_keep_less = run.config.trainer.recompute == config::Recompute::automatic;
  while (true) {
    const bool here = fits(run, run.batch.batch_size);
    run.replica.gradients.zero_();
    if (group.all_agree(here, "whether a micro-batch fits")) break;
    if (run.batch.batch_size == 1 && std::exchange(may_keep_less, false)) {  // the choice took an estimate at its word
      release_memory(run);
      use(run, question_of(run), least_memory(question_of(run)));
      continue;
    }
    if (run.batch.batch_size == 1) {
      throw base::machine_error("memory",
                                "not even one sample of {} tokens fits into memory. Lower data.seq_len, or use --recompute blocks, "
                                "--offload-checkpoints, --lora or --load-in-4bit.",
                                run.dataset.training->seq_len());
    }
    std::int64_t smaller = run.batch.batch_size / 2;
    while (run.batch.batch_size % smaller != 0) --smaller;
    run.batch.gradient_accumulation *= run.batch.batch_size / smaller;
    run.batch.batch_size = smaller;
    release_memory(run);
    choose_memory(group, run);
  }
  if (run.batch.batch_size == asked) return "";
  return fmt::format("batch_size {} did not fit into memory; a step takes {} micro-batches of {} instead, the global batch stays {}", asked,
                     run.batch.gradient_accumulation, run.batch.batch_size, run.batch.global_batch_size);
}

}  // namespace lockstep::train
