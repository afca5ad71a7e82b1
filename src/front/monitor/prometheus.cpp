// One family of samples after the other, as the format wants them.
#include "front/monitor/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "journal/parts.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::json;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

class Text {
 public:
  explicit Text(const std::string& run) : run_(escaped(run)) {}

  // All samples of one name come together.
  void family(std::string_view name, std::string_view help, std::string_view type = "gauge") {
    name_ = name;
    text_ += fmt::format("# HELP lockstep_{} {}\n# TYPE lockstep_{} {}\n", name, help, name, type);
  }
  void sample(double value, std::string_view labels = "") {
    text_ += fmt::format("lockstep_{}{{run=\"{}\"{}{}}} {}\n", name_, run_, labels.empty() ? "" : ",", labels,
                         std::isfinite(value) ? fmt::format("{}", value) : "NaN");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string run_, name_, text_;
};

void of_steps(Text& text, std::int64_t total_steps, const Json& line) {
  text.family("steps_planned", "Steps that the run is to take.");
  text.sample(static_cast<double>(total_steps));
  if (!line.is_object()) return;
  const auto one = [&](const char* key, const char* name, const char* help, const char* type = "gauge") {
    const auto found = line.find(key);
    if (found == line.end() || !(found->is_number() || found->is_null())) return;
    text.family(name, help, type);
    text.sample(found->is_number() ? found->get<double>() : NAN);
  };
  one("step", "steps_total", "Steps taken.", "counter");
  one("loss", "loss", "Loss of the last step that was told.");
  one("grad_norm", "gradient_norm", "Norm of the gradients.");
  one("learning_rate", "learning_rate", "Learning rate.");
  one("tokens", "tokens_total", "Tokens trained.", "counter");
  one("tokens_per_second", "tokens_per_second", "Tokens trained a second.");
  one("step_seconds", "step_seconds", "Seconds of a step.");
  one("mfu", "model_flops_utilization", "Share of the devices' peak.");
  one("skipped_steps", "skipped_steps_total", "Steps that were skipped for numbers that were not finite.", "counter");
  if (const auto parts = line.find("rank_seconds"); parts != line.end() && parts->is_object()) {
    text.family("rank_part_seconds", "Where each rank's time goes, per step.");
    for (const auto& [part, ranks] : parts->items()) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        text.sample(ranks[rank].is_number() ? ranks[rank].get<double>() : NAN, fmt::format("rank=\"{}\",part=\"{}\"", rank, escaped(part)));
    }
  }
  if (const auto memory = line.find("memory_bytes"); memory != line.end() && memory->is_array()) {
    text.family("rank_peak_memory_bytes", "Peak of each rank's tensors.");
    for (std::size_t rank = 0; rank < memory->size(); ++rank)
      if ((*memory)[rank].is_number()) text.sample((*memory)[rank].get<double>(), fmt::format("rank=\"{}\"", rank));
  }
}

template <typename Items, typename Value>
void of_each(Text& text, const char* name, const char* help, const Items& items, const char* label, int Items::value_type::*number,
             Value value) {
  bool begun = false;
  for (const auto& item : items) {
    const std::optional<double> found = value(item);
    if (!found) continue;
    if (!std::exchange(begun, true)) text.family(name, help);
    text.sample(*found, fmt::format("{}=\"{}\"", label, item.*number));
  }
}

void of_devices(Text& text, const Reading& reading) {
  using Found = std::optional<double>;
  const auto gpus = [&](const char* name, const char* help, auto value) {
    of_each(text, name, help, reading.gpus, "gpu", &GpuNow::number, [&](const GpuNow& gpu) -> Found {
      const auto found = value(gpu);
      return found ? Found(static_cast<double>(*found)) : Found();
    });
  };
  gpus("gpu_utilization_ratio", "Share of the last moment in which a kernel ran.",
       [](const GpuNow& gpu) { return gpu.reading.utilization_percent ? Found(*gpu.reading.utilization_percent / 100.0) : Found(); });
  gpus("gpu_memory_used_bytes", "Memory of the GPU that is taken.", [](const GpuNow& gpu) { return gpu.reading.memory_used_bytes; });
  gpus("gpu_power_watts", "Power that it draws.", [](const GpuNow& gpu) { return gpu.reading.power_w; });
  gpus("gpu_temperature_celsius", "Its temperature.", [](const GpuNow& gpu) { return gpu.reading.temperature_c; });
  gpus("gpu_clock_hertz", "Its clock.",
       [](const GpuNow& gpu) { return gpu.reading.sm_clock_mhz ? Found(*gpu.reading.sm_clock_mhz * 1e6) : Found(); });
  gpus("gpu_throttled", "1 where its clock is held down.",
       [](const GpuNow& gpu) { return gpu.reading.throttled ? Found(gpu.reading.throttled->empty() ? 0 : 1) : Found(); });
  gpus("gpu_other_processes", "Processes on it that are none of this run's.", [](const GpuNow& gpu) { return Found(gpu.others); });
  gpus("gpu_nvlink_sent_bytes_per_second", "Bytes sent over NVLink.", [](const GpuNow& gpu) { return gpu.nvlink_sent_per_s; });
  gpus("gpu_nvlink_received_bytes_per_second", "Bytes received over NVLink.", [](const GpuNow& gpu) { return gpu.nvlink_received_per_s; });
  const auto ranks = [&](const char* name, const char* help, auto value) {
    of_each(text, name, help, reading.ranks, "rank", &RankNow::rank, value);
  };
  ranks("rank_cpu_cores", "Cores that the rank's process keeps busy.", [](const RankNow& rank) { return rank.cpu; });
  ranks("rank_starved_ratio", "Share of the time in which its main thread waited for a core.",
        [](const RankNow& rank) { return rank.starved; });
  ranks("rank_resident_bytes", "Host memory of the rank's process.",
        [](const RankNow& rank) -> Found { return rank.memory_bytes ? Found(static_cast<double>(*rank.memory_bytes)) : Found(); });
}

}  // namespace

std::string prometheus_text(const std::string& run, std::int64_t total_steps, const Json& last_step, const Reading& reading) {
  Text text(run);
  of_steps(text, total_steps, last_step);
  of_devices(text, reading);
  return text.take();
}

}  // namespace lockstep::monitor
