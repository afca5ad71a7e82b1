// Reads the arguments that `lockstep bench` gives its workers; rank 0 writes the results.
#include "rank/bench/worker.h"

#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "rank/bench/bench.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::bench {
namespace {

using verbs::Arguments;

int number(const Arguments& arguments, const std::string& name) {
  const auto value = base::parse_integer(arguments.at(name));
  base::check(value.has_value(), "lockstep gives its workers whole numbers");
  return static_cast<int>(*value);
}

std::vector<std::int64_t> sizes_of(const Arguments& arguments) {
  std::vector<std::int64_t> sizes;
  for (const std::string& size : base::split(arguments.at("sizes"), ',')) sizes.push_back(base::parse_integer(size).value());
  return sizes;
}

std::optional<LinkModel> link_of(const Arguments& arguments) {
  const auto found = arguments.find("link");
  return found == arguments.end() ? std::nullopt : std::optional(parse_link_model(found->second));
}

std::optional<double> seconds_of(const Arguments& arguments, const std::string& name) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? std::nullopt : base::parse_number(found->second);
}

void run_comm(const Arguments& arguments, const config::RunConfig& config, at::Device device, const comm::Place& place, bool json,
              const std::shared_ptr<journal::PageWriter>& page, const Sink& sink) {
  page->set_phase(journal::Phase::connecting, 0);
  const comm::World world(
      {.place = place, .backend = config.trainer.distributed.backend, .device = device, .timeout_s = config.parallel.timeout_s}, page);
  page->set_phase(journal::Phase::reducing, 1);
  if (!json && place.rank == 0) {
    if (!world.fallback().empty()) sink(world.fallback());
    sink(comm_header(world, train::describe_device(device)));
  }
  measure_comm(world, sizes_of(arguments), json, sink);
}

}  // namespace

void run(const std::string& verb, const Arguments& arguments, at::Device device, const comm::Place& place,
         const std::shared_ptr<journal::PageWriter>& page) {
  config::RunConfig config = config::load_resolved(arguments.at("config"));
  config.model = config::with_defaults(config.model);
  const bool json = arguments.at("json") == "1";
  std::ofstream file(arguments.at("result"), std::ios::app);
  const Sink sink = [&](std::string_view line) { file << line << (line.ends_with('\n') ? "" : "\n") << std::flush; };

  page->set_phase(journal::Phase::building, 0);
  if (verb == "bench-comm") {
    run_comm(arguments, config, device, place, json, page, sink);
  } else if (verb == "bench-step") {
    const StepResult result = measure_step({.config = config,
                                            .device = device,
                                            .place = place,
                                            .page = page,
                                            .warm_up = number(arguments, "warm-up"),
                                            .steps = number(arguments, "steps"),
                                            .profile_steps = number(arguments, "profile"),
                                            .profile_folder = arguments.at("profile-folder"),
                                            .link = link_of(arguments),
                                            .timeline = arguments.contains("timeline") ? arguments.at("timeline") : "",
                                            .baseline = seconds_of(arguments, "baseline"),
                                            .planned = seconds_of(arguments, "planned")});
    sink(json ? to_json(result) : to_text(result));
  } else if (verb == "bench-kernels") {
    const KernelsResult result = measure_kernels(
        {.model = config.model, .device = device, .batch_size = config::plan_batch(config, 1).batch_size, .seq_len = config.data.seq_len});
    sink(json ? to_json(result) : to_text(result));
  } else {
    throw base::usage_error("worker", "'{}' is not a benchmark.", verb);
  }
  page->set_phase(journal::Phase::done, 0);
}

}  // namespace lockstep::bench
