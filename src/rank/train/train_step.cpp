// The step, from top to bottom: data, forward, backward with reduction behind it, clip, update. The same for 1 rank and for N.
#include "rank/train/train_step.h"

#include <ATen/ops/isfinite.h>

#include "base/clock.h"
#include "layout/spread/schedule.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::train {
namespace {

// What a loss that overflows leaves in every unit. Padding stays as it is: nothing computes it.
void spoil(model::Totals& totals, const model::Store& store) {
  totals.of(sum::loss).fill_(NAN);
  for (const model::HeldSlice& slice : store.updates())
    if (slice.count > 0) slice.gradients.narrow(0, 0, 1).fill_(NAN);
}

// What this rank has to say beside its losses.
void add_own_line(const Run& run, model::Totals& totals) {
  const int rank = run.mesh->everyone().rank();
  totals.add(sum::wishes, (run.asked_to_stop() ? 1 : 0) + (run.control ? sum::from_control_file * run.control->announce() : 0));
  totals.add(sum::peak_memory, static_cast<double>(peak_memory_bytes(run.world->device())), rank);
  totals.add_from(sum::seconds, rank * std::int64_t(journal::part_count), run.time->seconds());
  totals.add(sum::not_finite, at::isfinite(totals.of(sum::loss)).logical_not(), rank);
}

}  // namespace

std::vector<model::Sum> sums_of_a_step(int ranks, std::int64_t square_sums) {
  return {{std::string(sum::loss)},
          {std::string(sum::trained)},
          {std::string(sum::squares), square_sums},
          {std::string(sum::wishes)},
          {std::string(sum::not_finite), ranks},
          {std::string(sum::peak_memory), ranks},
          {std::string(sum::seconds), ranks * std::int64_t(journal::part_count)}};
}

journal::Wishes wishes_in(double total) {
  const auto whole = static_cast<std::int64_t>(total), unit = static_cast<std::int64_t>(sum::from_control_file);
  return static_cast<journal::Wishes>(whole / unit) | (whole % unit > 0 ? static_cast<unsigned>(journal::Wish::stop) : 0u);
}

// [one_step:begin]
StepOutcome train_step(Run& run) {
  const comm::Mesh& mesh = *run.mesh;
  const at::Device device = run.world->device();
  StepOutcome outcome{.step = run.progress.step + 1, .learning_rate = run.learning_rate()};

  run.enter(journal::Phase::reading_data);
  const std::int64_t start_ns = base::now_ns();
  const std::vector<data::Batch> batches = run.batches->next(mesh.data());
  outcome.data_seconds = base::seconds_since(start_ns);

  // Gradients of the summed loss pile up over micro-batches; the last backward reduces each bucket as it completes.
  model::Totals& totals = *run.totals;
  totals.clear();
  for (const auto& [what, flight] : layout::plain_schedule(std::ssize(batches))) {
    const data::Batch& batch = batches[static_cast<std::size_t>(flight)];
    if (what == layout::Do::forward) {
      run.enter(journal::Phase::forward);
      run.micro_steps->forward(batch, run.optimizer->scale(),
                               {.index = flight, .first = flight == 0, .last = flight + 1 == std::ssize(batches)});
      continue;
    }
    run.enter(journal::Phase::backward);
    totals.add(sum::loss, run.micro_steps->backward());
    totals.add(sum::trained, static_cast<double>(batch.trained));
    outcome.samples.insert(outcome.samples.end(), batch.samples.begin(), batch.samples.end());
  }

  run.enter(journal::Phase::reducing);
  outcome.backward_done = Moment(device);
  run.gradients->finish(mesh.loss());
  if (run.faults.spoils_loss(outcome.step)) spoil(totals, *run.replica.store);
  run.time->enter(journal::Part::optimizer);
  totals.add_all(sum::squares, run.optimizer->sum_of_squares());  // of the units that this rank counts
  add_own_line(run, totals);
  outcome.totals = totals.numbers();
  mesh.everyone().all_reduce(outcome.totals, comm::Reduce::sum, "loss and counts").wait();
  outcome.reduced = Moment(device);

  // Every rank holds the same sums now, so each decides alike: clip, skip what is not finite, update.
  run.enter(journal::Phase::updating);
  run.optimizer->finish_gradients(totals.all_of(sum::squares), totals.of(sum::trained), totals.of(sum::loss));
  parallel::RankStore& store = *run.replica.store;
  store.updated();
  run.optimizer->step(outcome.learning_rate, [&](std::size_t unit) {
    if (run.after_update.empty()) store.final_through(unit);
  });
  outcome.control = run.optimizer->control();
  for (const auto& mover : run.after_update) mover->follow(outcome);
  store.final_through(store.units());

  run.progress.step += 1;
  run.progress.position = outcome.position = run.batches->position();
  run.time->enter(journal::Part::other);
  return outcome;
}
// [one_step:end]

}  // namespace lockstep::train
