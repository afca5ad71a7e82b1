// `lockstep devices`: what there is to train on, and with which LibTorch.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "front/app/verbs.h"
#include "front/launch/devices/devices.h"
#include "front/launch/libtorch.h"

namespace lockstep::app {
namespace {

constexpr const char* help_text = R"(lockstep devices

Lists the GPUs that can be used (numbers are those --gpus takes), the processor's cores, and the LibTorch that workers run with.
)";

std::string libtorch_line(const launch::Environment& environment) {
  try {
    const launch::LibTorch found = launch::find_libtorch(environment, launch::own_program());
    return fmt::format("LibTorch {} in {} (found by {})\n", found.version, found.root.string(), found.found_by);
  } catch (const base::UserError& error) {
    return fmt::format("{}\n", error.what());
  }
}

}  // namespace

int run_devices_verb(std::span<const std::string> args) {
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) {
    std::fputs(help_text, stdout);
    return 0;
  }
  if (!args.empty()) throw base::usage_error("devices", "'{}': `lockstep devices` takes no arguments.", args[0]);
  const launch::Environment environment = launch::process_environment();
  const launch::Machine machine = launch::look_at_machine(environment);
  std::string text;
  for (std::size_t i = 0; i < machine.visible.size(); ++i) {
    const launch::Gpu& gpu = machine.visible[i].gpu;
    text += fmt::format("GPU {:<3} {:<28} {:>10}, {} free   {}\n", i, gpu.name,
                        gpu.memory_bytes > 0 ? base::human_bytes(gpu.memory_bytes) : "memory unknown",
                        gpu.memory_bytes > 0 ? base::human_bytes(gpu.free_bytes) : "?", gpu.uuid);
  }
  if (machine.visible.empty() && machine.installed.empty())
    text += "no GPU" + (machine.problem.empty() ? "" : ": " + machine.problem) + "\n";
  if (machine.visible.size() < machine.installed.size()) {
    text += fmt::format("{} of {} GPUs are hidden by CUDA_VISIBLE_DEVICES={}\n", machine.installed.size() - machine.visible.size(),
                        machine.installed.size(), launch::lookup(environment, "CUDA_VISIBLE_DEVICES").value_or(""));
  }
  text += fmt::format("CPU     {} core{}\n", machine.cores, machine.cores == 1 ? "" : "s") + libtorch_line(environment);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace lockstep::app
