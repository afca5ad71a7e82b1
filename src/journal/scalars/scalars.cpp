// From lines of metrics.jsonl to names.
#include "journal/scalars/scalars.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::journal {
namespace {

constexpr std::size_t ranks_by_name = 16;  // more would be hundreds of curves

}  // namespace

std::vector<Scalar> scalars_of(const StepLine& line) {
  std::vector<Scalar> scalars = {{"train/loss", line.loss},
                                 {"train/grad_norm", line.grad_norm},
                                 {"train/learning_rate", line.learning_rate},
                                 {"train/epoch", line.epoch},
                                 {fmt::format("speed/{}_per_second", line.counted), line.trained_per_second},
                                 {"speed/step_seconds", line.step_seconds}};
  if (line.mfu) scalars.push_back({"speed/mfu", *line.mfu});
  if (line.loss_scale) scalars.push_back({"train/loss_scale", *line.loss_scale});
  const std::size_t ranks = line.rank_seconds.size();
  for (const Part part : all_parts) {
    double sum = 0;
    for (const PartSeconds& rank : line.rank_seconds) sum += of(rank, part);
    if (ranks > 0) scalars.push_back({fmt::format("time/{}", name_of(part)), sum / static_cast<double>(ranks)});
    for (std::size_t rank = 0; ranks > 1 && rank < std::min(ranks, ranks_by_name); ++rank)
      scalars.push_back({fmt::format("rank-{}/{}", rank, name_of(part)), of(line.rank_seconds[rank], part)});
  }
  for (std::size_t rank = 0; rank < std::min(line.memory_bytes.size(), ranks_by_name); ++rank)
    scalars.push_back({fmt::format("rank-{}/memory_bytes", rank), static_cast<double>(line.memory_bytes[rank])});
  return scalars;
}

std::vector<Scalar> scalars_of(const EvalLine& line) {
  std::vector<Scalar> scalars = {{"eval/loss", line.loss}};
  for (const Measure& measure : line.measures) scalars.push_back({"eval/" + measure.name, measure.value});
  return scalars;
}

}  // namespace lockstep::journal
