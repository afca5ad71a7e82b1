// Results as people and programs read them. Each JSON is one line.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "rank/bench/bench.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Spread& spread) { return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}}; }

Json json_of(const Ceilings& ceilings) {
  return {{"bytes_per_second", ceilings.bytes_per_second},
          {"flops_per_second", ceilings.flops_per_second},
          {"copy_bytes", ceilings.copy_bytes},
          {"matmul_size", ceilings.matmul_size}};
}

std::string milliseconds(const Spread& spread) {
  return fmt::format("{:.2f} ms (min {:.2f}, max {:.2f})", spread.median * 1e3, spread.min * 1e3, spread.max * 1e3);
}

std::string ceilings_line(const Ceilings& ceilings) {
  return fmt::format("{:.1f} GB/s copying {}, {:.2f} TFLOP/s in a product of {} x {} matrices", ceilings.bytes_per_second * 1e-9,
                     base::human_bytes(static_cast<std::uint64_t>(ceilings.copy_bytes)), ceilings.flops_per_second * 1e-12,
                     ceilings.matmul_size, ceilings.matmul_size);
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3);
}

}  // namespace

std::string to_text(const StepResult& r) {
  const double flops = r.tokens_per_second() * r.flops_per_token.total();
  std::string mfu = "not stated: the dense peak of this device is not known for " + r.dtype;
  if (r.peak_flops) {
    mfu = fmt::format("{:.1f} % of the dense peak, {:.1f} TFLOP/s", 100 * *r.mfu(), r.peak_flops->dense * 1e-12);
    if (r.fp8) mfu += fmt::format(", and {:.1f} for the products of blocks, in 8 bits", r.peak_flops->fp8 * 1e-12);
  }
  std::string text =
      fmt::format("{}, {} parameters, {}, on {}\n", r.model, base::human_count(static_cast<double>(r.parameters)), r.dtype, r.device);
  const auto line = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<14} {}\n", name, value); };
  line("step", fmt::format("{} sequences of {} tokens x {} micro-batches; {} steps after {}", r.batch_size, r.seq_len, r.accumulation,
                           r.step_seconds.size(), r.warm_up));
  if (!r.data.empty()) line("data", r.data);
  if (!r.link.empty()) line("modelled", r.link);
  line("step time", milliseconds(r.step) + ", update included");
  if (r.baseline)
    line("", fmt::format("{:.1f} % of the speed it has where the link takes no time, {:.2f} ms{}", 100 * *r.baseline / r.step.median,
                         *r.baseline * 1e3, r.planned ? fmt::format("; planned: {:.2f} ms", *r.planned * 1e3) : ""));
  line("micro-batch", fmt::format("{}, forward and backward{}", milliseconds(r.micro_batch), r.cuda_graph ? " as one CUDA graph" : ""));
  line("update", fmt::format("{}, {}", milliseconds(r.update), r.optimizer));
  line("tokens/s", fmt::format("{:.0f} with an update every {:.0f} tokens", r.tokens_per_second(), r.tokens_per_step));
  const auto size = [](std::int64_t bytes) { return base::human_bytes(static_cast<std::uint64_t>(bytes)); };
  line("activations", r.activations);
  line("gradients", r.gradients);
  line("peak memory", size(r.peak_memory_bytes) + " in tensors");
  if (r.driver_memory_bytes > 0) line("", size(r.driver_memory_bytes) + " taken as the driver counts, every process together");
  line("", size(r.host_peak_memory_bytes) + " of the host's");
  line("MFU", mfu);
  line("",
       fmt::format("tokens/s x {:.4g} / peak; operations per token = 6 x (weights of trained matrices + layers x heads x head_dim x seq)"
                   " + 4 x weights of frozen ones",
                   r.flops_per_token.total()));
  line("roofline", fmt::format("{:.1f} % of this device's own matmul rate", 100 * flops / r.ceilings.flops_per_second));
  line("ceilings", ceilings_line(r.ceilings));
  if (r.timeline) {
    line("timeline", fmt::format("{} (open in ui.perfetto.dev)", r.timeline->trace.string()));
    for (const StepTimeline::Kind& kind : r.timeline->kinds) {
      const std::string busy = kind.operations > 0 ? fmt::format("{} in {:.2f} ms; ", kind.operations, kind.seconds * 1e3) : "";
      line("",
           fmt::format("{:<14} {}{} of {} waited for, {:.2f} ms", kind.name, busy, kind.exposed, kind.waits, kind.exposed_seconds * 1e3));
    }
  }
  if (r.profile) {
    line("profile", fmt::format("{} (open in ui.perfetto.dev)", r.profile->trace.string()));
    text += "\n" + r.profile->table;
  }
  return text;
}

std::string to_json(const StepResult& r) {
  const double flops = r.tokens_per_second() * r.flops_per_token.total();
  Json json = {{"bench", "step"},
               {"model", r.model},
               {"parameters", r.parameters},
               {"trained_parameters", r.trained_parameters},
               {"device", r.device},
               {"dtype", r.dtype},
               {"ranks", r.ranks},
               {"modelled", r.link},
               {"link", r.link_name},
               {"baseline_seconds", r.baseline ? Json(*r.baseline) : Json(nullptr)},
               {"planned_seconds", r.planned ? Json(*r.planned) : Json(nullptr)},
               {"optimizer", r.optimizer},
               {"seq_len", r.seq_len},
               {"batch_size", r.batch_size},
               {"accumulation", r.accumulation},
               {"data", r.data.empty() ? Json(nullptr) : Json(r.data)},
               {"tokens_per_step", r.tokens_per_step},
               {"activations", r.activations},
               {"gradients", r.gradients},
               {"cuda_graph", r.cuda_graph},
               {"warm_up", r.warm_up},
               {"step_seconds", json_of(r.step)},
               {"micro_batch_seconds", json_of(r.micro_batch)},
               {"update_seconds", json_of(r.update)},
               {"tokens_per_second", r.tokens_per_second()},
               {"peak_memory_bytes", r.peak_memory_bytes},
               {"driver_memory_bytes", r.driver_memory_bytes},
               {"host_peak_memory_bytes", r.host_peak_memory_bytes},
               {"flops_per_token", {{"projections", r.flops_per_token.projections}, {"others", r.flops_per_token.others}}},
               {"dense_peak_flops", r.peak_flops ? Json(r.peak_flops->dense) : Json(nullptr)},
               {"projections_peak_flops", r.peak_flops ? Json(r.fp8 ? r.peak_flops->fp8 : r.peak_flops->dense) : Json(nullptr)},
               {"mfu", r.peak_flops ? Json(*r.mfu()) : Json(nullptr)},
               {"mfu_formula", "tokens_per_second * (projections / projections_peak_flops + others / dense_peak_flops)"},
               {"share_of_measured_matmul", flops / r.ceilings.flops_per_second},
               {"ceilings", json_of(r.ceilings)},
               {"raw_step_seconds", r.step_seconds}};
  if (r.timeline) {
    Json kinds = Json::object();
    for (const StepTimeline::Kind& kind : r.timeline->kinds)
      kinds[kind.name] = {{"operations", kind.operations},
                          {"seconds", kind.seconds},
                          {"waits", kind.waits},
                          {"exposed", kind.exposed},
                          {"exposed_seconds", kind.exposed_seconds}};
    json["timeline"] = {{"trace", r.timeline->trace.string()}, {"collectives", std::move(kinds)}};
  }
  if (r.profile) json["profile"] = {{"steps", r.profile->steps}, {"trace", r.profile->trace.string()}};
  return json.dump();
}

std::string to_text(const KernelsResult& result) {
  std::string text = fmt::format("kernels of {}, {} rows, {}, on {}\n  ceilings: {}\n\n", result.model, result.rows, result.dtype,
                                 result.device, ceilings_line(result.ceilings));
  text += fmt::format("{:<32} {:>22} {:>10} {:>15} {:>8}\n", "kernel", "shape", "time", "rate", "share");
  for (const KernelResult& kernel : result.kernels) {
    const std::string rate =
        kernel.bytes > 0 ? fmt::format("{:.1f} GB/s", kernel.rate() * 1e-9) : fmt::format("{:.1f} GFLOP/s", kernel.rate() * 1e-9);
    text += fmt::format("{:<32} {:>22} {:>10} {:>15} {:>6.1f} %\n", kernel.name, kernel.shape, time_text(kernel.seconds.median), rate,
                        100 * kernel.share_of(result.ceilings));
  }
  return text;
}

std::string to_json(const KernelsResult& result) {
  Json json = {{"bench", "kernels"},    {"model", result.model}, {"device", result.device},
               {"dtype", result.dtype}, {"rows", result.rows},   {"ceilings", json_of(result.ceilings)}};
  json["kernels"] = Json::array();
  for (const KernelResult& kernel : result.kernels) {
    json["kernels"].push_back({{"name", kernel.name},
                               {"shape", kernel.shape},
                               {"seconds", json_of(kernel.seconds)},
                               {"limit", kernel.bytes > 0 ? "bandwidth" : "compute"},
                               {"bytes", kernel.bytes},
                               {"flops", kernel.flops},
                               {"rate", kernel.rate()},
                               {"share", kernel.share_of(result.ceilings)}});
  }
  return json.dump();
}

std::string comm_header(const comm::World& world, const std::string& device) {
  return fmt::format("collectives of {} ranks over {}, f32, on {}\n  {:<16} {:>10} {:>12} {:>12} {:>12} {:>7}", world.everyone().size(),
                     config::name_of(world.backend()), device, "operation", "size", "time", "algorithm", "bus", "calls");
}

std::string to_text(const CommResult& r) {
  return fmt::format("  {:<16} {:>10} {:>12} {:>7.3f} GB/s {:>7.3f} GB/s {:>7}", r.operation,
                     base::human_bytes(static_cast<std::uint64_t>(r.bytes)), time_text(r.seconds), r.algorithm_bandwidth() * 1e-9,
                     r.bus_bandwidth() * 1e-9, r.calls);
}

std::string to_json(const CommResult& r) {
  return Json{{"bench", "comm"},
              {"operation", r.operation},
              {"ranks", r.ranks},
              {"bytes", r.bytes},
              {"seconds", r.seconds},
              {"calls", r.calls},
              {"algorithm_bytes_per_second", r.algorithm_bandwidth()},
              {"bus_bytes_per_second", r.bus_bandwidth()}}
      .dump();
}

}  // namespace lockstep::bench
