// What follows from the settings: batch, accumulation and learning rate.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/checks.h"
#include "config/config.h"

namespace lockstep::config {
namespace {

constexpr std::int64_t usual_batch_size = 8;

std::int64_t largest_divisor(std::int64_t value, std::int64_t most) {
  std::int64_t divisor = std::min(value, most);
  while (value % divisor != 0) --divisor;
  return divisor;
}

std::string rank_count(int ranks) { return ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks); }

// global_batch_size / (given * ranks), or an error that names values that divide. `name` is the one of the two that was given.
std::int64_t share(std::int64_t global, std::int64_t given, std::string_view name, int ranks) {
  const std::int64_t step = given * ranks;
  if (global % step == 0) return global / step;
  if (given == 1) {
    throw base::usage_error("config", "trainer.global_batch_size = {} does not divide by {}. Use global_batch_size {}.", global,
                            rank_count(ranks), nearest_multiples(global, step));
  }
  std::string other;
  if (global % ranks == 0) other = fmt::format(", or {} {}", name, largest_divisor(global / ranks, given));
  throw base::usage_error("config", "trainer.global_batch_size = {} does not divide by {} {} x {} (= {}). Use global_batch_size {}{}.",
                          global, name, given, rank_count(ranks), step, nearest_multiples(global, step), other);
}

}  // namespace

BatchPlan plan_batch(const RunConfig& config, int ranks) {
  base::check(ranks >= 1, "a run has at least one rank");
  const TrainerConfig& trainer = config.trainer;
  BatchPlan plan{trainer.batch_size, trainer.gradient_accumulation, trainer.global_batch_size, trainer.learning_rate};
  if (plan.global_batch_size == 0) {
    if (plan.batch_size == 0) plan.batch_size = usual_batch_size;
    if (plan.gradient_accumulation == 0) plan.gradient_accumulation = 1;
    plan.global_batch_size = plan.batch_size * plan.gradient_accumulation * ranks;
  } else if (plan.batch_size == 0 && plan.gradient_accumulation == 0) {
    const std::int64_t per_rank = share(plan.global_batch_size, 1, "gradient_accumulation", ranks);
    plan.batch_size = largest_divisor(per_rank, usual_batch_size);
    plan.gradient_accumulation = per_rank / plan.batch_size;
  } else if (plan.gradient_accumulation == 0) {
    plan.gradient_accumulation = share(plan.global_batch_size, plan.batch_size, "batch_size", ranks);
  } else if (plan.batch_size == 0) {
    plan.batch_size = share(plan.global_batch_size, plan.gradient_accumulation, "gradient_accumulation", ranks);
  } else if (const std::int64_t product = plan.batch_size * plan.gradient_accumulation * ranks; product != plan.global_batch_size) {
    throw base::usage_error("config",
                            "trainer.batch_size {} x gradient_accumulation {} x {} = {}, but trainer.global_batch_size = {}. Use "
                            "global_batch_size {}, or leave one of the three out: it follows from the others.",
                            plan.batch_size, plan.gradient_accumulation, rank_count(ranks), product, plan.global_batch_size, product);
  }
  if (trainer.lr_scaling == LrScaling::linear) plan.learning_rate *= ranks;
  if (trainer.lr_scaling == LrScaling::sqrt) plan.learning_rate *= std::sqrt(static_cast<double>(ranks));
  return plan;
}

std::int64_t warmup_steps(const TrainerConfig& trainer, std::int64_t total_steps) {
  if (trainer.warmup_ratio <= 0) return trainer.warmup_steps;
  const auto share = static_cast<std::int64_t>(std::ceil(trainer.warmup_ratio * static_cast<double>(total_steps)));
  return trainer.warmup_steps > 0 ? std::min(trainer.warmup_steps, share) : share;
}

}  // namespace lockstep::config
