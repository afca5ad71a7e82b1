// Writes summary.json: settings, devices, totals and the raw step times and losses.
#include "rank/train/watch/summary.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/files.h"
#include "rank/train/memory/device_memory.h"
#include "rank/train/memory/held_buffers.h"
#include "rank/train/watch/peak_flops.h"

namespace lockstep::train {
namespace {

constexpr std::size_t warm_up_steps = 3;  // left out of averages: allocation, first touches, autotuning

}  // namespace

Summary::Summary(const Run& run)
    : run_(run), device_name_(describe_device(run.world->device())), start_ns_(base::now_ns()), first_step_(run.progress.step) {
  flops_ = run.task->flops();
  if (const auto peak = peak_flops(device_name_, run.config.model.dtype))
    ideal_seconds_ = ideal_seconds(flops_, *peak, run.config.trainer.fp8) / run.mesh->everyone().size();
}

void Summary::add(std::int64_t, double seconds, double loss, double trained) {
  if (seconds_.empty()) buffers_ = held_buffers(run_);
  seconds_.push_back(seconds);
  losses_.push_back(loss);
  trained_.push_back(trained);
}

void Summary::add_evaluation(const journal::EvalLine& line) { evaluations_.push_back(line); }

std::optional<double> Summary::mfu(double trained_per_second) const {
  if (!ideal_seconds_) return std::nullopt;
  return trained_per_second * *ideal_seconds_;
}

void Summary::write() const {
  const std::size_t skip = seconds_.size() > 2 * warm_up_steps ? warm_up_steps : 0;
  const std::span<const double> measured = std::span(seconds_).subspan(skip);
  const double seconds = std::accumulate(measured.begin(), measured.end(), 0.0);
  const double trained = std::accumulate(trained_.begin() + static_cast<std::ptrdiff_t>(skip), trained_.end(), 0.0);
  const double rate = seconds > 0 ? trained / seconds : 0;
  const std::string counted = run_.task->counted();
  nlohmann::ordered_json json;
  json["name"] = run_.folder.root.filename().string();
  json["model"] = run_.config.model.name;
  json["parameters"] = run_.replica.parameters();
  json["trained_parameters"] = run_.replica.trained_parameters();
  json["device"] = device_name_;
  json["ranks"] = run_.mesh->everyone().size();
  json["backend"] = config::name_of(run_.world->backend());
  json["dtype"] = config::name_of(run_.config.model.dtype);
  json["batch"] = {{"batch_size", run_.batch.batch_size},
                   {"gradient_accumulation", run_.batch.gradient_accumulation},
                   {"global_batch_size", run_.batch.global_batch_size},
                   {"seq_len", run_.task->training()->sample_size()}};
  json["fp8"] = run_.config.trainer.fp8;
  json["activations"] = run_.recompute;
  json["cuda_graph"] = run_.micro_steps->replayed();
  json["learning_rate"] = run_.batch.learning_rate;
  json["data"] = run_.task->description();
  json["first_step"] = first_step_ + 1;
  json["last_step"] = run_.progress.step;
  json[counted] = run_.progress.trained;
  json["skipped_steps"] = run_.progress.skipped;
  json["seconds"] = base::seconds_since(start_ns_);
  json["step_seconds"] = {{"average", measured.empty() ? 0 : seconds / static_cast<double>(measured.size())},
                          {"min", measured.empty() ? 0 : *std::min_element(measured.begin(), measured.end())},
                          {"max", measured.empty() ? 0 : *std::max_element(measured.begin(), measured.end())},
                          {"left_out", skip}};
  json[counted + "_per_second"] = rate;
  json[counted + "_per_second_per_gpu"] = rate / run_.mesh->everyone().size();
  json["mfu"] = mfu(rate) ? nlohmann::ordered_json(*mfu(rate)) : nlohmann::ordered_json(nullptr);
  json["flops_per_token"] = {{"projections", flops_.projections}, {"others", flops_.others}};
  json["memory"] = {{"peak_bytes", peak_memory_bytes(run_.world->device())},  // rank 0's
                    {"driver_bytes", driver_memory_bytes(run_.world->device())},
                    {"host_peak_bytes", peak_host_memory_bytes()}};
  for (const layout::PartBytes& part : buffers_) json["memory"]["buffers"][std::string(layout::name_of(part.part))] = part.bytes;
  json["final_loss"] = losses_.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(losses_.back());
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const journal::EvalLine& line : evaluations_) {
    auto& evaluation = json["evaluations"].emplace_back(nlohmann::ordered_json{{"step", line.step}, {"eval_loss", line.loss}});
    for (const journal::Measure& measure : line.measures) evaluation["eval_" + measure.name] = measure.value;
    evaluation["eval_" + line.counted] = line.trained;
  }
  json["raw_step_seconds"] = seconds_;
  json["raw_losses"] = losses_;
  base::write_text_atomically(base::real_files(), run_.folder.summary(), json.dump(1) + "\n");
}

}  // namespace lockstep::train
