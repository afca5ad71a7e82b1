// The same batch source and the same kind of totals as training; short slices are filled with samples of weight 0.
#include "rank/train/evaluate.h"

namespace lockstep::train {

journal::EvalLine evaluate(Run& run) {
  const comm::Group &data = run.mesh->data(), &loss_ranks = run.mesh->loss();
  const auto source = open_batches(run.config.data.distributed_loading, run.task->validation(),
                                   {.batch_size = run.batch.batch_size,
                                    .shard = {data.rank(), data.size()},
                                    .seed = run.config.trainer.seed,
                                    .shuffle = false,
                                    .prefetch = run.config.data.prefetch,
                                    .workers = run.config.data.workers,
                                    .repeat = false},
                                   {});
  model::Totals totals(run.task->evaluation_sums(), run.world->device());
  // Counted in the global batches of training, so that any spread of a batch over ranks evaluates on the same samples.
  const std::int64_t rounds = run.config.trainer.eval_batches * run.batch.gradient_accumulation;
  for (std::int64_t done = 0; rounds == 0 || done < rounds; ++done) {
    run.page->set_phase(journal::Phase::evaluating, run.progress.step);
    const std::vector<data::Batch> batches = source->next(data);
    if (batches.empty()) break;
    for (const data::Batch& batch : batches) run.task->score(*run.model, batch, totals);
  }
  run.mesh->everyone().meet("evaluating");  // devices of different speeds are far apart by now
  const at::Tensor sums = totals.numbers();
  loss_ranks.all_reduce(sums, comm::Reduce::sum, "sums of the evaluation").wait();
  const at::Tensor host = sums.cpu();
  journal::EvalLine line = run.task->evaluated(totals, {host.const_data_ptr<double>(), static_cast<std::size_t>(host.numel())});
  line.step = run.progress.step;
  return line;
}

}  // namespace lockstep::train
