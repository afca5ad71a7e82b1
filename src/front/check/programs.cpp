// Programs and libraries: the worker, LibTorch, and whether one starts with the other.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file/temporary_folder.h"
#include "base/json.h"
#include "base/text.h"
#include "front/catalog/catalog.h"
#include "front/check/lists.h"
#include "front/check/probe.h"
#include "front/launch/libtorch.h"
#include "front/launch/process.h"
#include "journal/tail.h"

namespace lockstep::check {
namespace {

namespace fs = std::filesystem;
constexpr double longest_start_s = 120;  // LibTorch from a cold network disk

// What cannot be found keeps every later check from starting ranks.
Outcome or_nothing_starts(Context& context, const std::function<Outcome()>& look) {
  try {
    return look();
  } catch (const base::UserError&) {
    context.can_start = false;
    throw;
  }
}

}  // namespace

nlohmann::json probe_worker(const Context& context, std::vector<std::string> arguments) {
  const launch::OwnWorker own = launch::own_worker(context.environment);
  launch::Environment environment = launch::without_ranks(context.environment, own);
  environment["LOCKSTEP_DEVICE"] = context.machine.visible.empty() ? "cpu" : "cuda:0";
  const base::TemporaryFolder scratch = base::TemporaryFolder::fresh("lockstep-check");
  const fs::path log = scratch.path() / "log";
  arguments.insert(arguments.begin(), "probe");
  launch::Child worker =
      launch::Child::start({.program = own.program, .arguments = std::move(arguments), .environment = environment, .log = log});
  if (!worker.wait(longest_start_s)) {
    worker.kill_now();
    throw base::machine_error("check", "lockstep-worker has not answered within {:.0f} s.", longest_start_s);
  }
  const std::vector<std::string> lines = journal::last_lines(log, 20);
  if (!worker.end()->clean())
    throw base::machine_error("check", "lockstep-worker {}:\n{}", launch::in_words(*worker.end()), base::join(lines, "\n"));
  for (const std::string& line : lines) {
    if (line.starts_with("{\"probe\"")) return base::parse_json(line);
  }
  throw base::machine_error("check", "lockstep-worker started and said nothing.");
}

Outcome check_worker(Context& context) {
  return or_nothing_starts(context,
                           [&]() -> Outcome { return {{good(launch::find_worker(context.environment, launch::own_program()).string())}}; });
}

Outcome check_libtorch(Context& context) {
  return or_nothing_starts(context, [&]() -> Outcome {
    const launch::LibTorch found = launch::find_libtorch(context.environment, launch::own_program());
    const std::string words = fmt::format("{} in {} (found by {})", found.version, found.root.string(), found.found_by);
    if (found.version.ends_with("+cpu") && !context.machine.visible.empty())
      return {{failed("LS-105", words + " is a CPU build, and there are GPUs")}};
    return {{good(words)}, {{"version", found.version}, {"path", found.root.string()}}};
  });
}

Outcome check_start(Context& context) {
  if (!context.can_start) return {{not_here("worker or LibTorch is missing: see above")}};
  return or_nothing_starts(context, [&]() -> Outcome {
    const nlohmann::json answer = probe_worker(context, {});
    const std::size_t visible = context.machine.visible.size();
    if (visible == 0) return {{good("starts on the CPU")}};
    const std::size_t seen = answer.at("gpus").size();
    const std::string words = fmt::format("starts with CUDA and sees {} GPU{}", seen, seen == 1 ? "" : "s");
    if (seen == visible) return {{good(words)}};
    context.can_start = false;  // ranks would be given GPUs that they cannot open
    return {{failed(seen == 0 ? "LS-201" : "LS-205", fmt::format("{}; the driver shows {}", words, visible))}};
  });
}

}  // namespace lockstep::check
