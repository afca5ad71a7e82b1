// Every rank reads its slices of the validation split; short slices are filled with samples of weight 0.
#include "rank/train/evaluate.h"

#include <cmath>

#include "rank/task/task.h"

namespace lockstep::train {

journal::EvalLine evaluate(Run& run) {
  const comm::Group &data = run.mesh->data(), &loss_ranks = run.mesh->loss();
  const auto source = read_own_share(run.dataset.validation,
                                     {.batch_size = run.batch.batch_size,
                                      .shard = {data.rank(), data.size()},
                                      .seed = run.config.trainer.seed,
                                      .shuffle = false,
                                      .prefetch = run.config.data.prefetch,
                                      .workers = run.config.data.workers,
                                      .repeat = false},
                                     {});
  at::Tensor sums = at::zeros({3}, at::TensorOptions().dtype(at::kDouble).device(data.device()));
  // Counted in the global batches of training, so that any spread of a batch over ranks evaluates on the same samples.
  const std::int64_t rounds = run.config.trainer.eval_batches * run.batch.gradient_accumulation;
  for (std::int64_t done = 0; rounds == 0 || done < rounds; ++done) {
    run.page->set_phase(journal::Phase::evaluating, run.progress.step);
    const std::vector<data::Batch> batches = source->next(data);
    if (batches.empty()) break;
    for (const data::Batch& batch : batches) {
      const model::Score score = task::score(*run.model, batch);
      sums[0] += score.loss;
      sums[1] += score.correct;
      sums[2] += batch.trained_tokens;
    }
  }
  run.mesh->everyone().meet("evaluating");  // devices of different speeds are far apart by now
  loss_ranks.all_reduce(sums, comm::Reduce::sum, "evaluation loss").wait();
  sums = sums.cpu();
  const double tokens = sums[2].item<double>();
  const double loss = tokens > 0 ? sums[0].item<double>() / tokens : 0;
  return {.step = run.progress.step,
          .eval_loss = loss,
          .eval_perplexity = std::exp(loss),
          .eval_accuracy = tokens > 0 ? sums[1].item<double>() / tokens : 0,
          .eval_tokens = static_cast<std::int64_t>(tokens)};
}

}  // namespace lockstep::train
