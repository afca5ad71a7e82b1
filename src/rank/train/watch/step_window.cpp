// Differences between totals that only grow, divided by the steps between them.
#include "rank/train/watch/step_window.h"

#include <utility>

#include "rank/train/train_step.h"

namespace lockstep::train {

void StepWindow::add(double seconds, double trained) {
  seconds_ += seconds;
  trained_ += trained;
  steps_ += 1;
}

void StepWindow::close(std::span<const double> numbers, journal::StepLine& line) {
  line.trained_per_second = trained_ / seconds_;
  line.step_seconds = seconds_ / steps_;
  line.rank_seconds = rank_seconds(numbers);
  line.collectives = collectives();
  seconds_ = trained_ = steps_ = 0;
}

std::vector<journal::PartSeconds> StepWindow::rank_seconds(std::span<const double> numbers) {
  const auto ranks = static_cast<std::size_t>(run_.mesh->everyone().size());
  told_seconds_.resize(ranks);
  std::vector<journal::PartSeconds> of_a_step(ranks);
  for (std::size_t i = 0; i < ranks * journal::part_count; ++i) {
    const std::size_t rank = i / journal::part_count, part = i % journal::part_count;
    const double now = run_.totals->read(numbers, sum::seconds, static_cast<std::int64_t>(i));
    of_a_step[rank][part] = (now - std::exchange(told_seconds_[rank][part], now)) / steps_;
  }
  return of_a_step;
}

std::vector<journal::CollectiveLine> StepWindow::collectives() {
  std::vector<journal::CollectiveLine> lines;
  run_.world->note_finished();  // a step may be over before the watcher looks again: its operations would count without their time
  auto entries = run_.world->ledger().entries();
  for (const auto& [kind, now] : entries) {
    const comm::Ledger::Entry& told = told_collectives_[kind];
    if (now.calls == told.calls) continue;
    const auto bytes = static_cast<double>(now.bytes - told.bytes);
    journal::CollectiveLine& line = lines.emplace_back();
    line = {.kind = kind, .calls = static_cast<double>(now.calls - told.calls) / steps_, .bytes = bytes / steps_};
    // A reduction inside a CUDA graph has no time of its own: with most bytes untimed the rest would tell too little.
    if (2 * static_cast<double>(now.timed_bytes - told.timed_bytes) >= bytes) line.seconds = (now.seconds - told.seconds) / steps_;
  }
  told_collectives_ = std::move(entries);
  return lines;
}

}  // namespace lockstep::train
