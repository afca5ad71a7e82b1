// A ring all-reduce, bucket by bucket, behind the backward of the last micro-batch.
#include "front/plan/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "layout/decoder.h"
#include "layout/memory/memory.h"

namespace lockstep::plan {
namespace {

constexpr double backward_share = 2.0 / 3;  // backward multiplies twice for each product of forward

using Json = nlohmann::ordered_json;

}  // namespace

std::vector<Link> known_links() {
  return {
      {"nvlink", 360e9, 3e-6, "NVLink 4 behind NVSwitch (H100, H200): 450 GB/s one way, 80 % of it", 16},
      {"ib400", 44e9, 5e-6, "400 Gbit/s a GPU: 50 GB/s one way, 88 % of it", 16},
      {"pcie4", 20e9, 8e-6, "PCIe 4.0 x16 through the host: 31.5 GB/s one way, 65 % of it", 4},
      {"ethernet-100", 11e9, 25e-6, "100 Gbit/s, one GPU a machine: 12.5 GB/s one way, 88 % of it", 4},
  };
}

Link link_named(std::string_view name) {
  if (name == "nvlink8") name = "nvlink";
  if (name == "pcie4x16") name = "pcie4";
  std::vector<std::string> names;
  for (const Link& link : known_links()) {
    if (link.name == name) return link;
    names.push_back(link.name);
  }
  const auto near = base::nearest(name, names);
  throw base::usage_error("plan", "--link {} is not one of {}.{} --bandwidth and --latency describe any other.", name,
                          base::join(names, ", "), near ? fmt::format(" Did you mean {}?", *near) : "");
}

Links links_named(std::string_view names, int machine) {
  const std::size_t plus = names.find('+');
  const std::string_view between = plus == names.npos ? names : names.substr(plus + 1);
  return {link_named(names.substr(0, plus)), link_named(between), machine};
}

std::vector<int> gpu_counts(int gpus, int groups) {
  std::vector<int> counts;
  for (int count = 1; count < gpus; count *= 2)
    if (count == 1 || count % groups == 0) counts.push_back(count);
  counts.push_back(gpus);
  return counts;
}

Prediction predict_shards(const Measured& measured, const Links& links, const layout::Tables& tables) {
  const layout::Traffic& moved = tables.traffic;
  const int gpus = tables.mesh.ranks(), sharers = tables.mesh.along(layout::Axis::shard),
            replicas = tables.mesh.along(layout::Axis::replicate);
  const auto members = [&](layout::Axis axis) { return tables.mesh.members(0, std::array{axis}); };
  const Link &link = links.of(members(layout::Axis::shard)), &apart = links.of(members(layout::Axis::replicate));
  const auto time_over = [](const Link& over, double bytes, std::int64_t times) {
    return bytes / over.bytes_per_second + static_cast<double>(times) * over.latency_s;
  };
  const auto seconds = [&](std::int64_t bytes, std::int64_t times) { return time_over(link, static_cast<double>(bytes), times); };
  // Layers do not hide what forward begins with, nor what backward ends with: gathers of the embedding and the first layer, which come
  // behind the update before, and the embedding's reduction.
  const auto whole = [&](std::int64_t bytes) { return bytes == 0 ? 0 : seconds(bytes / sharers * (sharers - 1), 1); };
  const double first = whole(measured.embedding_bytes), last = whole(measured.late_bytes);
  const auto average = [](double all, std::int64_t times) { return times == 0 ? 0 : all / static_cast<double>(times); };
  Prediction result{.gpus = gpus, .step_s = measured.step_seconds};
  const double gathers = seconds(moved.gathered_bytes, moved.gathers), reductions = seconds(moved.reduced_bytes, moved.reductions);
  // Reductions hide behind the backwards that have some: every one, or the last one of a step.
  const double last_backward = backward_share * measured.step_seconds / static_cast<double>(measured.accumulation);
  const double backward = measured.reduces_always ? backward_share * measured.step_seconds : last_backward;
  result.communication_s = gathers + reductions;
  if (moved.gathers > 0)
    result.exposed_s += std::max({first + average(gathers, moved.gathers) - measured.update_seconds, gathers - measured.step_seconds, 0.0});
  if (moved.reductions > 0) result.exposed_s += std::max({last, average(reductions, moved.reductions), reductions - backward});
  if (moved.exchanges > 0) {
    const double all = time_over(apart, static_cast<double>(moved.exchanged_bytes), moved.exchanges);
    const double late = time_over(apart, 2.0 * (replicas - 1) / replicas * static_cast<double>(measured.late_bytes) / sharers, 1);
    result.communication_s += all;
    result.exposed_s += std::max(late, all - last_backward);
  }
  if (measured.adapters) {
    const Prediction sums = predict(measured, links.of(gpus), gpus);
    result.communication_s += sums.communication_s;
    result.exposed_s += sums.exposed_s;
  }
  result.step_s += result.exposed_s;
  result.efficiency = measured.step_seconds / result.step_s;
  result.speed_up = gpus * result.efficiency;
  return result;
}

Prediction predict(const Measured& measured, const Link& link, int gpus) {
  base::check(gpus >= 1 && measured.step_seconds > 0 && measured.accumulation >= 1, "a plan is for a measured step and at least one GPU");
  Prediction result{.gpus = gpus, .step_s = measured.step_seconds};
  if (gpus > 1) {
    const double n = gpus, bytes = static_cast<double>(measured.gradient_bytes);
    const double buckets = std::max<double>(1, std::ceil(bytes / static_cast<double>(measured.bucket_bytes)));
    const double bucket_s = 2 * (n - 1) / n * bytes / buckets / link.bytes_per_second + 2 * (n - 1) * link.latency_s;
    const double backward_s = backward_share * measured.step_seconds / static_cast<double>(measured.accumulation);
    result.communication_s = buckets * bucket_s;
    // Buckets complete at even distances, the last ones when backward ends: those are never hidden.
    const double late =
        std::clamp<double>(std::ceil(static_cast<double>(measured.late_bytes) / static_cast<double>(measured.bucket_bytes)), 1, buckets);
    result.exposed_s = std::max(late * bucket_s, result.communication_s - backward_s * (buckets - 1) / buckets);
    result.step_s += result.exposed_s;
  }
  result.efficiency = measured.step_seconds / result.step_s;
  result.speed_up = gpus * result.efficiency;
  return result;
}

Prediction predict_for(const config::RunConfig& config, const Measured& measured, const Links& links, int gpus) {
  if (measured.sharded && gpus > 1) {
    const layout::Tables tables = layout::tables_of(config, measured.accumulation, gpus);
    if (tables.traffic != layout::Traffic{}) return predict_shards(measured, links, tables);
  }
  return predict(measured, links.of(gpus), gpus);
}

Measured measured_of(const config::RunConfig& config) {
  const std::int64_t width = config.parallel.reduce_dtype == config::ReduceDType::f32 ? 4 : layout::bytes_of(config.model.dtype);
  const layout::Placement placement = layout::placement_of(config);
  const std::int64_t embedding = config.model.vocab_size * config.model.hidden_size;
  std::int64_t trained = 0;
  for (const layout::HeldUnit& unit : layout::held_units(config))
    for (const layout::LeafSpec& leaf : unit.spec.leaves) trained += unit.holding.trained ? leaf.elements() : 0;
  return {.gradient_bytes = trained * width,
          .late_bytes = config.lora.enabled ? 0 : embedding * width,
          .bucket_bytes = static_cast<std::int64_t>(config.parallel.bucket_cap_mb * (1 << 20)),
          .sharded = placement != layout::replicas,
          .reduces_always = placement.gradients != layout::Spread::whole,
          .adapters = config.lora.enabled,
          .embedding_bytes = embedding * layout::bytes_of(config.model.dtype)};
}

std::string shards_formula() {
  return R"(  gathers, reductions = bytes a rank receives / bandwidth + their number x latency   (the gather table's)
  between replicas    = the same of their shares' sums, behind the last backward
  exposed             = max(the embedding's and a layer's gather - update, gathers - step)
                        + max(the embedding's, reductions - their backwards)
                        + max(the embedding's, between replicas - the last backward)
  step on N           = step + exposed;  efficiency = step / step on N;  speed-up = N x efficiency, the batch a GPU kept
)";
}

std::string formula() {
  return R"(  bucket        = 2 (N-1)/N x bytes of a bucket / bandwidth + 2 (N-1) x latency     (ring all-reduce)
  communication = buckets x bucket
  backward      = 2/3 x step / micro-batches per step                                (the last micro-batch's)
  late          = bucket x buckets of the embedding, at least one                    (backward completes it last)
  exposed       = max(late, communication - backward x (buckets-1)/buckets)
  step on N     = step + exposed;  efficiency = step / step on N;  speed-up = N x efficiency, the batch a GPU kept
)";
}

std::string to_text(const Measured& measured, const Links& links, const std::vector<Prediction>& predictions) {
  const std::int64_t buckets = (measured.gradient_bytes + measured.bucket_bytes - 1) / measured.bucket_bytes;
  std::string text = fmt::format("one GPU's step: {:.2f} ms, {} micro-batches; gradients: {}{}\n", measured.step_seconds * 1e3,
                                 measured.accumulation, base::human_bytes(static_cast<std::uint64_t>(measured.gradient_bytes)),
                                 measured.sharded && !measured.adapters ? ", cut between GPUs" : fmt::format(" in {} buckets", buckets));
  const auto line = [&](std::string_view what, const Link& link) {
    text += fmt::format("{}: {}, {:.1f} GB/s, {:.1f} us a message ({})\n", what, link.name, link.bytes_per_second * 1e-9,
                        link.latency_s * 1e6, link.basis);
  };
  line("link", links.within);
  if (!links.same()) line(fmt::format("between machines of {}", links.machine), links.between);
  text += fmt::format("\n{:>5} {:>12} {:>15} {:>10} {:>9} {:>11}\n", "GPUs", "step", "communication", "exposed", "speed-up", "efficiency");
  for (const Prediction& p : predictions) {
    text += fmt::format("{:>5} {:>9.2f} ms {:>12.2f} ms {:>7.2f} ms {:>8.2f}x {:>9.1f} %\n", p.gpus, p.step_s * 1e3,
                        p.communication_s * 1e3, p.exposed_s * 1e3, p.speed_up, 100 * p.efficiency);
  }
  text += "\nA prediction, not a measurement:\n";
  if (measured.sharded) text += shards_formula();
  if (measured.sharded && measured.adapters) text += "what adapters exchange, and its part of the above:\n";
  return text + (measured.sharded && !measured.adapters ? "" : formula());
}

std::string to_json(const Measured& measured, const Links& links, const std::vector<Prediction>& predictions) {
  const Link& link = links.within;
  Json json = {
      {"step_seconds", measured.step_seconds},
      {"gradient_bytes", measured.gradient_bytes},
      {"bucket_bytes", measured.bucket_bytes},
      {"accumulation", measured.accumulation},
      {"link",
       {{"name", link.name}, {"bytes_per_second", link.bytes_per_second}, {"latency_seconds", link.latency_s}, {"basis", link.basis}}}};
  if (!links.same())
    json["between_machines"] = {{"name", links.between.name},
                                {"machine", links.machine},
                                {"bytes_per_second", links.between.bytes_per_second},
                                {"latency_seconds", links.between.latency_s},
                                {"basis", links.between.basis}};
  json["predictions"] = Json::array();
  for (const Prediction& p : predictions) {
    json["predictions"].push_back({{"gpus", p.gpus},
                                   {"step_seconds", p.step_s},
                                   {"communication_seconds", p.communication_s},
                                   {"exposed_seconds", p.exposed_s},
                                   {"speed_up", p.speed_up},
                                   {"efficiency", p.efficiency}});
  }
  return json.dump();
}

MeasuredRun read_measured(std::string_view text, std::string_view path) {
  const auto wrong = [&](std::string_view why) {
    return base::usage_error("plan", "--from {}: {}. Give a run's summary.json, or what `lockstep bench step --json` printed.", path, why);
  };
  try {
    const auto json = base::parse_json(text);
    MeasuredRun run;
    const auto& seconds = json.at("step_seconds");
    run.step_seconds = seconds.contains("median") ? seconds.at("median").get<double>() : seconds.at("average").get<double>();
    if (json.contains("update_seconds")) run.update_seconds = json.at("update_seconds").at("median").get<double>();
    run.parameters = json.at("parameters").get<std::int64_t>();
    run.dtype = json.at("dtype").get<std::string>();
    run.accumulation = json.contains("batch") ? json.at("batch").at("gradient_accumulation").get<std::int64_t>()
                                              : json.at("accumulation").get<std::int64_t>();
    run.what = fmt::format("{} on {}", json.at("model").get<std::string>(), json.at("device").get<std::string>());
    if (json.value("ranks", 1) != 1 && json.value("link", "") != "infinite")
      throw wrong(fmt::format("the run had {} ranks; the model starts from a step of one, or of one of many with --link infinite",
                              json["ranks"].get<int>()));
    if (run.step_seconds <= 0) throw wrong("it holds no measured step");
    return run;
  } catch (const nlohmann::json::exception& error) {
    throw wrong(error.what());
  } catch (const base::JsonError& error) {
    throw wrong(error.what());
  }
}

}  // namespace lockstep::plan
