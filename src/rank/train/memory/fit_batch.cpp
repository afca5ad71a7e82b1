// Tries micro-batches on for size.
#include "rank/train/memory/fit_batch.h"

#include <c10/util/Exception.h>

#include <new>
#include <utility>

#include "base/error.h"
#include "layout/recompute.h"
#include "rank/train/memory/device_memory.h"
#include "rank/train/memory/full_memory.h"
#include "rank/train/memory/gradients.h"

namespace lockstep::train {
namespace {

// Forward and backward with nothing to train: the gradients that come of it are zero.
bool fits(Run& run, std::int64_t samples) {
  if (run.faults.refuses(samples)) return false;
  try {
    run.task->forward(*run.model, /*flight=*/0, run.task->make_up(samples, run.world->device(), /*trains=*/false), {});
    run.model->backward(run.optimizer->scale()).item<float>();
  } catch (const c10::Error& error) {
    if (!full_memory(error)) throw;
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void use(Run& run, const MemoryQuestion& question, const MemoryPlan& plan) {
  run.gradient_sums = apply(plan, question, run.replica, *run.model);
  run.gradient_form = describe(plan, run.config, run.replica, run.gradient_sums.get());
  run.recompute = model::describe(plan.recompute);
}

MemoryQuestion question_of(const Run& run) {
  return {run.config, run.batch, run.task->training()->sample_size(), run.mesh->loss().size(), run.free_bytes};
}

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
    run.replica.store->rehearse(true);  // a rank without room would leave the others waiting
    const bool here = fits(run, run.batch.batch_size);
    run.replica.store->rehearse(false);
    run.replica.zero_gradients();
    if (group.all_agree(here, "whether a micro-batch fits")) break;
    if (run.batch.batch_size == 1 && std::exchange(may_keep_less, false)) {  // the choice took an estimate at its word
      release_memory(run);
      use(run, question_of(run), least_memory(question_of(run)));
      continue;
    }
    if (run.batch.batch_size == 1) {
      if (here) group.meet("a micro-batch that another rank has no room for");  // that rank ends the run, and is the one to be named
      throw base::machine_error("memory",
                                "the {} memory is full: not even one sample of {} tokens fits on rank {}. Lower data.seq_len, or use "
                                "--recompute blocks, --offload-checkpoints, --shard full, --lora or --load-in-4bit.",
                                run.world->device().is_cpu() ? "machine's" : "device's", run.task->training()->sample_size(), group.rank());
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
