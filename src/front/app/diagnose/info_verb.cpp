// `lockstep info`: versions, devices, how they are connected, variables that matter, and the ranks that live here.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "front/app/diagnose/rank_table.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/check/host.h"
#include "front/check/links.h"
#include "front/check/variables.h"
#include "front/job/ask.h"
#include "front/job/identity.h"
#include "front/launch/devices/nvml.h"
#include "front/launch/libtorch.h"
#include "front/launch/meet/socket.h"
#include "text/terminal.h"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;
using launch::Environment;

Json versions(const Environment& environment, const launch::Nvml& nvml) {
  Json json = {{"lockstep", job::build_id()}};
  try {
    const launch::LibTorch found = launch::find_libtorch(environment, launch::own_program());
    json["libtorch"] = found.version;
    json["libtorch_path"] = found.root.string();
    json["libtorch_found_by"] = found.found_by;
  } catch (const base::UserError& error) {
    json["libtorch"] = nullptr;
    json["libtorch_problem"] = error.what();
  }
  json["driver"] = nvml.started() ? Json(nvml.driver_version()) : Json(nullptr);
  if (!nvml.problem().empty()) json["driver_problem"] = nvml.problem();
  const auto cuda = nvml.cuda_version();
  json["cuda_of_driver"] = cuda ? Json(fmt::format("{}.{}", *cuda / 1000, *cuda % 1000 / 10)) : Json(nullptr);
  return json;
}

Json machine() {
  const base::HostMemory memory = base::look_at_host_memory();
  const check::Disk shared = check::look_at_disk("shared memory", "/dev/shm");
  Json json = {{"host", launch::meet::host_name()},         {"cores", launch::usable_cores()},
               {"memory_bytes", memory.total_bytes},        {"memory_available_bytes", memory.available_bytes},
               {"shared_memory_bytes", shared.total_bytes}, {"network_interfaces", check::network_interfaces()}};
  if (memory.container_limit_bytes) json["container_memory_bytes"] = *memory.container_limit_bytes;
  return json;
}

Json devices(const launch::Nvml& nvml) {
  Json list = Json::array();
  for (int i = 0; i < nvml.count(); ++i)
    list.push_back(check::describe_gpu(nvml.facts(i), nvml.read(i, {.pcie_traffic = false}), nvml.processes(i)));
  return list;
}

Json variables(const Environment& environment) {
  Json list = Json::array();
  for (const check::Variable& known : check::known_variables()) {
    for (const auto& [name, value] : environment) {
      if (check::find_variable(name) != &known) continue;
      const bool secret = name == "LOCKSTEP_SECRET";  // the machines' of a run alone
      list.push_back({{"name", name}, {"value", secret ? "(set)" : value}, {"does", known.does}});
    }
  }
  return list;
}

std::string text_of(const Json& json, const char* name, const char* otherwise) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

std::string bytes_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? base::human_bytes(found->get<std::uint64_t>()) : "?";
}

std::string gpu_line(const Json& gpu) {
  std::string line = fmt::format("  GPU {:<3} {}, {} of {} used", gpu.value("index", 0), gpu.value("name", ""),
                                 bytes_of(gpu, "memory_used_bytes"), bytes_of(gpu, "memory_bytes"));
  const auto add = [&](const char* name, const char* format) {
    if (gpu.contains(name)) line += fmt::format(fmt::runtime(format), gpu.at(name).get<double>());
  };
  add("utilization_percent", ", {:.0f} % busy");
  add("temperature_c", ", {:.0f} C");
  add("power_w", ", {:.0f} W");
  add("power_limit_w", " of {:.0f}");
  add("sm_clock_mhz", ", {:.0f} MHz");
  add("sm_clock_max_mhz", " of {:.0f}");
  add("pcie_generation_max", ", PCIe {:.0f}.0");
  add("pcie_width", " x{:.0f}");
  for (const Json& reason : gpu.value("throttled", Json::array())) line += ", throttled: " + reason.get<std::string>();
  return line + fmt::format("\n          {}  {}\n", gpu.value("uuid", ""), gpu.value("bus_id", ""));
}

std::string to_text(const Json& all, const std::string& links) {
  const Json &version = all.at("versions"), &host = all.at("machine");
  std::string text = fmt::format("versions\n  lockstep  {}\n  LibTorch  {}\n", text_of(version, "lockstep", "?"),
                                 version.at("libtorch").is_null()
                                     ? text_of(version, "libtorch_problem", "")
                                     : fmt::format("{} in {} (found by {})", text_of(version, "libtorch", ""),
                                                   text_of(version, "libtorch_path", ""), text_of(version, "libtorch_found_by", "")));
  text += version.at("driver").is_null()
              ? fmt::format("  driver    none{}\n", version.contains("driver_problem") ? ": " + text_of(version, "driver_problem", "") : "")
              : fmt::format("  driver    {}, CUDA up to {}\n", text_of(version, "driver", "?"), text_of(version, "cuda_of_driver", "?"));
  text += fmt::format(
      "\nmachine\n  {}, {} cores, {} of memory, {} of it available{}; /dev/shm has {}\n  network: {}\n", text_of(host, "host", "?"),
      host.at("cores").get<int>(), bytes_of(host, "memory_bytes"), bytes_of(host, "memory_available_bytes"),
      host.contains("container_memory_bytes") ? ", this container may use " + bytes_of(host, "container_memory_bytes") : "",
      bytes_of(host, "shared_memory_bytes"), base::join(host.at("network_interfaces").get<std::vector<std::string>>(), ", "));
  text += "\ndevices\n";
  for (const Json& gpu : all.at("gpus")) text += gpu_line(gpu);
  if (all.at("gpus").empty()) text += "  no GPU: ranks train on the CPU\n";
  if (!links.empty()) text += "\nbetween GPUs (NV18: 18 NVLinks; P2P: peer access by PCIe; host: through host memory)\n" + links + "\n";
  text += "\nvariables that matter\n";
  for (const Json& variable : all.at("variables"))
    text += fmt::format("  {}={}\n      {}\n", text_of(variable, "name", ""), text::harmless(text_of(variable, "value", "")),
                        text_of(variable, "does", ""));
  if (all.at("variables").empty()) text += "  none is set\n";
  return text;
}

}  // namespace

int run_info_verb(std::span<const std::string> args) {
  std::string run, output = config::RunConfig().output;
  bool json = false;
  CLI::App app{
      "Shows what there is: versions, this machine and its devices, how GPUs are connected, environment variables that matter and what "
      "each "
      "does here, and the ranks that live on this machine, with what each is doing. With RUN: the ranks of that run alone.",
      "lockstep info"};
  app.add_option("RUN", run, "a run's folder, or its name under --output");
  app.add_option("--output", output, "where runs lie")->capture_default_str();
  app.add_flag("--json", json, "as one JSON object");
  if (!read_flags(app, args, "info")) return 0;

  if (!run.empty()) {
    const RankTable table = table_of_run(job::find_run(run, output));
    std::fputs((json ? to_json(table).dump(2) + "\n" : to_text(table)).c_str(), stdout);
    return 0;
  }
  const Environment environment = launch::process_environment();
  const launch::Nvml nvml;
  Json all = {
      {"versions", versions(environment, nvml)}, {"machine", machine()}, {"gpus", devices(nvml)}, {"variables", variables(environment)}};
  std::string links;
  if (nvml.count() > 1) {
    std::vector<int> positions;
    for (int i = 0; i < nvml.count(); ++i) positions.push_back(i);
    links = check::to_text(check::look_at_links(nvml, positions));
    all["links"] = base::split(links, '\n');
  }
  all["runs"] = Json::array();
  std::string ranks;
  for (const RankTable& table : tables_of_living_runs()) {
    all["runs"].push_back(to_json(table));
    ranks += "\n" + to_text(table);
  }
  std::fputs((json ? all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : to_text(all, links) + ranks).c_str(), stdout);
  return 0;
}

}  // namespace lockstep::app
