// The step, from top to bottom: data, forward, backward with reduction behind it, clip, update. The same for 1 rank and for N.
#include "rank/train/train_step.h"

#include <ATen/ops/isfinite.h>

#include "base/clock.h"
#include "rank/train/device_memory.h"
#include "rank/train/stop_signal.h"

namespace lockstep::train {
namespace {

// This rank's line of the numbers that ranks add up.
at::Tensor local_totals(const Run& run, const at::Tensor& loss_sum, std::int64_t trained_tokens) {
  const int ranks = run.mesh->everyone().size();
  const int rank = run.mesh->everyone().rank();
  at::Tensor numbers = at::zeros({Totals::per_rank + 2 * ranks}, at::kDouble);
  double* slots = numbers.mutable_data_ptr<double>();
  slots[Totals::tokens] = static_cast<double>(trained_tokens);
  slots[Totals::wishes] = (stop_requested() ? 1 : 0) + (run.control ? Totals::from_control_file * run.control->announce() : 0);
  slots[Totals::per_rank + ranks + rank] = static_cast<double>(peak_memory_bytes(run.world->device()));
  numbers = numbers.to(loss_sum.device(), /*non_blocking=*/true);
  numbers[Totals::loss].copy_(loss_sum);
  numbers[Totals::per_rank + rank].copy_(at::isfinite(loss_sum).logical_not());
  return numbers;
}

}  // namespace

record::Wishes wishes_in(double sum) {
  const auto whole = static_cast<std::int64_t>(sum), unit = static_cast<std::int64_t>(Totals::from_control_file);
  return static_cast<record::Wishes>(whole / unit) | (whole % unit > 0 ? static_cast<unsigned>(record::Wish::stop) : 0u);
}

// [one_step:begin]
StepOutcome train_step(Run& run) {
  const comm::Mesh& mesh = *run.mesh;
  const at::Device device = run.world->device();
  StepOutcome outcome{.step = run.progress.step + 1, .learning_rate = run.learning_rate()};

  run.enter(record::Phase::reading_data);
  const std::int64_t start_ns = base::now_ns();
  const std::vector<data::Batch> batches = run.batches->next(mesh.data());
  outcome.data_seconds = base::seconds_since(start_ns);

  // Gradients of the summed loss pile up over micro-batches; the last backward reduces each bucket as it completes.
  at::Tensor loss_sum = at::zeros({}, at::TensorOptions().device(device).dtype(at::kDouble));
  std::int64_t trained_tokens = 0;
  for (const data::Batch& batch : batches) {
    run.enter(record::Phase::forward);
    const bool last = &batch == &batches.back();
    const at::Tensor& scale = run.optimizer->scale();
    loss_sum += last ? run.micro_steps->run_and_reduce(mesh.loss(), batch, scale) : run.micro_steps->run(batch, scale);
    trained_tokens += batch.trained_tokens;
    outcome.samples.insert(outcome.samples.end(), batch.samples.begin(), batch.samples.end());
  }
  if (run.faults.spoils_loss(outcome.step)) {
    loss_sum.fill_(NAN);
    run.replica.gradients.fill_(NAN);
  }

  run.enter(record::Phase::reducing);
  outcome.backward_done = Moment(device);
  run.gradients->finish(mesh.loss());
  outcome.totals = local_totals(run, loss_sum, trained_tokens);
  mesh.everyone().all_reduce(outcome.totals, comm::Reduce::sum, "loss and token counts").wait();
  outcome.reduced = Moment(device);

  // Every rank holds the same sums now, so each decides alike: clip, skip what is not finite, update.
  run.enter(record::Phase::updating);
  run.optimizer->finish_gradients(run.optimizer->sum_of_squares(), outcome.totals[Totals::tokens], outcome.totals[Totals::loss]);
  run.optimizer->step(outcome.learning_rate);
  outcome.control = run.optimizer->control();

  run.progress.step += 1;
  run.progress.position = outcome.position = run.batches->position();
  return outcome;
}
// [one_step:end]

}  // namespace lockstep::train
