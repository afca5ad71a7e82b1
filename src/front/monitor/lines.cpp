// Numbers that are not known are left out.
#include "front/monitor/lines.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace lockstep::monitor {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <typename T>
void put(OrderedJson& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

double rounded(double value, double to) { return std::round(value * to) / to; }

OrderedJson to_json(const GpuNow& gpu) {
  const launch::GpuReading& reading = gpu.reading;
  OrderedJson json = {{"gpu", gpu.number}};
  if (reading.utilization_percent) json["utilization"] = *reading.utilization_percent / 100.0;
  put(json, "memory_bytes", reading.memory_used_bytes);
  if (reading.power_w) json["power_watts"] = rounded(*reading.power_w, 10);
  put(json, "temperature", reading.temperature_c);
  put(json, "clock_mhz", reading.sm_clock_mhz);
  if (reading.throttled) {
    json["throttle"] = OrderedJson::array();
    for (const launch::Throttle reason : *reading.throttled) json["throttle"].push_back(launch::name_of(reason));
  }
  put(json, "pcie_tx", reading.pcie_sent_bytes_per_s);
  put(json, "pcie_rx", reading.pcie_received_bytes_per_s);
  put(json, "nvlink_tx", gpu.nvlink_sent_per_s);
  put(json, "nvlink_rx", gpu.nvlink_received_per_s);
  json["others"] = gpu.others;
  return json;
}

OrderedJson to_json(const RankNow& rank) {
  OrderedJson json = {{"rank", rank.rank}};
  if (!rank.phase.empty()) json["phase"] = rank.phase, json["step"] = rank.step;
  if (rank.cpu) json["cpu"] = rounded(*rank.cpu, 1000);
  if (rank.starved) json["starved"] = rounded(*rank.starved, 1000);
  put(json, "memory_bytes", rank.memory_bytes);
  return json;
}

template <typename T>
OrderedJson list_of(const std::vector<T>& items) {
  OrderedJson list = OrderedJson::array();
  for (const T& item : items) list.push_back(to_json(item));
  return list;
}

}  // namespace

std::string machine_line(const MachineFacts& facts, const std::vector<UsedGpu>& gpus, const std::vector<RankProcess>& ranks) {
  OrderedJson json = {{"event", "machine"},
                      {"host", facts.host},
                      {"machine", facts.machine},
                      {"job", facts.job},
                      {"every_seconds", facts.every_s},
                      {"time", base::utc_time()},
                      {"gpus", OrderedJson::array()},
                      {"ranks", OrderedJson::array()}};
  for (const UsedGpu& gpu : gpus) {
    OrderedJson& one =
        json["gpus"].emplace_back(OrderedJson{{"gpu", gpu.number}, {"ranks", gpu.ranks}, {"name", gpu.name}, {"uuid", gpu.uuid}});
    put(one, "memory_bytes", gpu.memory_bytes);
    put(one, "max_clock_mhz", gpu.max_clock_mhz);
  }
  for (const RankProcess& rank : ranks) json["ranks"].push_back({{"rank", rank.rank}, {"pid", rank.pid}, {"device", rank.device}});
  return json.dump();
}

std::string reading_line(const Reading& reading) {
  return OrderedJson{{"seconds", rounded(reading.seconds, 1000)},
                     {"time", base::utc_time()},
                     {"gpus", list_of(reading.gpus)},
                     {"ranks", list_of(reading.ranks)}}
      .dump();
}

std::string straggler_line(const Verdict& verdict) {
  return OrderedJson{{"event", "straggler"},
                     {"rank", verdict.straggler.rank},
                     {"part", journal::name_of(verdict.straggler.part)},
                     {"seconds", verdict.straggler.seconds},
                     {"share", verdict.straggler.share},
                     {"reason", name_of(verdict.reason)},
                     {"text", verdict.text},
                     {"time", base::utc_time()}}
      .dump();
}

std::vector<journal::Scalar> scalars_of(const nlohmann::json& line) {
  std::vector<journal::Scalar> scalars;
  if (!line.is_object() || line.contains("event")) return scalars;
  for (const auto& [name, value] : line.items()) {
    if (name == "step") continue;
    const bool speed = name.ends_with("_per_second") || name.ends_with("_seconds") || name == "mfu";
    if (value.is_number())
      scalars.push_back({name.starts_with("eval_") ? "eval/" + name.substr(5) : (speed ? "speed/" : "train/") + name, value.get<double>()});
    if (name == "rank_seconds" && value.is_object()) {
      for (const auto& [part, ranks] : value.items()) {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
          if (ranks[rank].is_number()) scalars.push_back({fmt::format("rank-{}/{}", rank, part), ranks[rank].get<double>()});
      }
    }
    if (name == "memory_bytes" && value.is_array()) {
      for (std::size_t rank = 0; rank < value.size(); ++rank)
        if (value[rank].is_number()) scalars.push_back({fmt::format("rank-{}/memory_bytes", rank), value[rank].get<double>()});
    }
  }
  return scalars;
}

std::vector<journal::Scalar> scalars_of(const Reading& reading) {
  std::vector<journal::Scalar> scalars;
  for (const GpuNow& gpu : reading.gpus) {
    const auto add = [&](const char* name, const auto& value, double times = 1) {
      if (value) scalars.push_back({fmt::format("gpu-{}/{}", gpu.number, name), static_cast<double>(*value) * times});
    };
    add("utilization", gpu.reading.utilization_percent, 0.01);
    add("memory_bytes", gpu.reading.memory_used_bytes);
    add("power_watts", gpu.reading.power_w);
    add("temperature", gpu.reading.temperature_c);
    add("clock_mhz", gpu.reading.sm_clock_mhz);
  }
  for (const RankNow& rank : reading.ranks) {
    if (rank.cpu) scalars.push_back({fmt::format("process-{}/cpu", rank.rank), *rank.cpu});
    if (rank.memory_bytes) scalars.push_back({fmt::format("process-{}/memory_bytes", rank.rank), static_cast<double>(*rank.memory_bytes)});
  }
  return scalars;
}

}  // namespace lockstep::monitor
