// What a run was asked for: its settings, its model, its data, and whether it fits.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "corpus/samples/split.h"
#include "front/catalog/catalog.h"
#include "front/check/lists.h"
#include "front/check/probe.h"
#include "front/job/memory_advice.h"
#include "front/job/plan.h"
#include "front/job/setup.h"

namespace lockstep::check {
namespace {

// Without looking at other launchers' variables: those are a check of their own.
job::Setup set_up_here(const Context& context) {
  config::Settings settings = context.settings;
  settings.values.launch.spawn = true;
  return job::set_up(std::move(settings), context.environment);
}

}  // namespace

Context make_context(config::Request request, launch::Environment environment) {
  Context context{.environment = std::move(environment), .request = std::move(request)};
  try {
    context.settings = config::load(context.request);
  } catch (const base::UserError& error) {
    context.mistake = error.what();
    context.settings = config::load({});
  }
  if (context.settings.values.trainer.target_device == config::DeviceKind::cpu)
    context.machine.cores = launch::usable_cores();
  else
    context.machine = launch::look_at_machine(context.environment);
  try {
    const job::Setup setup = set_up_here(context);
    context.ranks = static_cast<int>(setup.job.ranks.size());
    context.on_gpus = setup.on_gpus;
  } catch (const base::UserError& error) {
    if (context.mistake.empty()) context.mistake = error.what();
    context.ranks = std::max<int>(1, static_cast<int>(context.machine.visible.size()));
    context.on_gpus = !context.machine.visible.empty();
  }
  return context;
}

Outcome check_settings(Context& context) {
  if (!context.mistake.empty()) {
    const catalog::Entry* entry = catalog::recognize(context.mistake);
    return {{failed(entry != nullptr ? entry->code : "", context.mistake,
                    entry != nullptr ? "" : "see the message; `lockstep config show` reads the same settings")}};
  }
  const job::Setup setup = set_up_here(context);
  const std::string where = context.on_gpus ? fmt::format("GPU{}", context.ranks == 1 ? "" : "s") : "the CPU";
  const std::int64_t needs = setup.plan.memory.total();
  const std::string words = fmt::format("{} rank{} on {}, {} parameters, {} of memory a rank", context.ranks, context.ranks == 1 ? "" : "s",
                                        where, base::human_count(static_cast<double>(setup.plan.parameters)),
                                        base::human_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, needs))));
  if (const auto note = job::memory_note(setup)) return {{warning("LS-401", *note)}};
  return {{good(words)}, {{"ranks", context.ranks}, {"rank_bytes", needs}}};
}

Outcome check_model(Context& context) {
  const std::string& path = context.settings.values.model.path;
  if (path.empty()) return {{not_here("no model folder was given: weights start at random")}};
  if (!context.can_start) return {{not_here("worker or LibTorch is missing: see above")}};
  const nlohmann::json answer = probe_worker(context, {"--model", std::filesystem::absolute(path).string()});
  return {{good(fmt::format("{}: {} tensors, all there", path, answer.at("tensors").get<std::int64_t>()))}};
}

Outcome check_data(Context& context) {
  corpus::check_data_exists(context.settings.values);
  return {{good(job::describe_data(context.settings.values.data))}};
}

}  // namespace lockstep::check
