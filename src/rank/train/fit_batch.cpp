// Tries micro-batches on for size.
#include "rank/train/fit_batch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <new>

#include "base/error.h"
#include "rank/data/data.h"
#include "rank/train/device_memory.h"
#include "rank/train/keep.h"

namespace lockstep::train {
namespace {

// Forward and backward with nothing to train: the gradients that come of it are zero.
bool fits(Run& run, std::int64_t samples) {
  if (run.faults.refuses(samples)) return false;
  const auto options = at::TensorOptions().dtype(at::kLong).device(run.world->device());
  const std::int64_t time = run.dataset.training->seq_len();
  try {
    const at::Tensor tokens = at::zeros({samples, time}, options), targets = at::full({samples, time}, data::untrained, options);
    const bool drops = run.config.lora.enabled && run.config.lora.dropout > 0;
    const at::Tensor keys = drops ? at::zeros({samples}, options) : at::Tensor();
    run.model->forward_backward({.tokens = tokens, .targets = targets, .keys = keys}, run.optimizer->scale()).item<float>();
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace

void choose_recompute(Run& run) {
  const std::vector<model::Keep> keep =
      keep_for(run.config, {run.batch.batch_size, run.dataset.training->seq_len()}, run.replica.units.front()->weights().element_size(),
               run.world->device(), run.ranks().size());
  run.model->set_keep(keep, run.config.trainer.offload_checkpoints);
  run.recompute = model::describe(keep);
}

std::string fit_batch_size(const comm::Group& group, Run& run) {
  if (!run.config.trainer.auto_find_batch_size) return "";
  const std::int64_t asked = run.batch.batch_size;
  while (true) {
    const bool here = fits(run, run.batch.batch_size);
    run.replica.gradients.zero_();
    if (group.all_agree(here, "whether a micro-batch fits")) break;
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
    run.model->release_buffers();
    empty_cache(group.device());
    choose_recompute(run);
  }
  if (run.batch.batch_size == asked) return "";
  return fmt::format("batch_size {} did not fit into memory; a step takes {} micro-batches of {} instead, the global batch stays {}", asked,
                     run.batch.gradient_accumulation, run.batch.batch_size, run.batch.global_batch_size);
}

}  // namespace lockstep::train
