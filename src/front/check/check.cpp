// The list, and walking it.
#include "front/check/check.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "front/catalog/catalog.h"
#include "front/check/lists.h"

namespace lockstep::check {
namespace {

using Json = nlohmann::ordered_json;

// A mistake that a check runs into is its finding: what is wrong with one thing never hides the next.
Outcome run_guarded(const Check& check, Context& context) {
  try {
    return check.run(context);
  } catch (const base::UserError& error) {
    const catalog::Entry* entry = catalog::recognize(error.what());
    return {{failed(entry != nullptr ? entry->code : "", error.what(), entry != nullptr ? "" : "see the message")}};
  }
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok: return "ok";
    case Verdict::not_here: return "not here";
    case Verdict::warning: return "warning";
    case Verdict::failed: return "failed";
  }
  throw base::Bug("a verdict has a name");
}

Finding good(std::string words) { return {Verdict::ok, std::move(words)}; }
Finding not_here(std::string words) { return {Verdict::not_here, std::move(words)}; }

namespace {
Finding trouble(Verdict verdict, std::string_view code, std::string words, std::string fix) {
  if (fix.empty() && !code.empty()) fix = catalog::known(code).fix;
  return {verdict, std::move(words), code, std::move(fix)};
}
}  // namespace

Finding warning(std::string_view code, std::string words, std::string fix) {
  return trouble(Verdict::warning, code, std::move(words), std::move(fix));
}
Finding failed(std::string_view code, std::string words, std::string fix) {
  return trouble(Verdict::failed, code, std::move(words), std::move(fix));
}

const std::vector<Check>& checks() {
  static const std::vector<Check> list = {
      {"what was asked for", "settings", "can the settings be read, and does a rank fit", check_settings},
      {"programs", "worker", "is the worker beside this program", check_worker},
      {"programs", "libtorch", "is LibTorch there, of the right version", check_libtorch},
      {"programs", "start", "does the worker start, with CUDA where there are GPUs", check_start},
      {"GPUs", "driver", "is there a driver, new enough", check_driver},
      {"GPUs", "gpus", "which GPUs, who else uses them, are they slowed down", check_gpus},
      {"GPUs", "kinds", "are they of one kind", check_kinds},
      {"GPUs", "links", "how do they reach each other", check_links},
      {"machine", "launcher", "do variables of a launcher make sense", check_launcher},
      {"machine", "variables", "do variables of libraries make sense", check_variables},
      {"machine", "port", "is there a port to meet at", check_port},
      {"machine", "names", "does the host name resolve", check_names},
      {"machine", "shared_memory", "is there room in /dev/shm", check_shared_memory},
      {"machine", "limits", "may enough files and processes be open", check_limits},
      {"machine", "memory", "is there memory, in this container too", check_memory},
      {"machine", "disks", "is there room on disks", check_disks},
      {"machine", "clock", "is the clock right", check_clock},
      {"files", "model", "can the model be read", check_model},
      {"files", "data", "can the data be read", check_data},
      {"ranks", "gloo", "do CPU ranks exchange the right numbers", check_gloo},
      {"ranks", "nccl", "do GPUs exchange the right numbers, and how fast", check_nccl},
      {"ranks", "training", "do all ranks train, and hold equal weights", check_training},
  };
  return list;
}

Verdict Result::verdict() const {
  Verdict worst = Verdict::ok;
  for (const Finding& finding : outcome.findings) worst = std::max(worst, finding.verdict);
  return worst;
}

Json to_json(const Result& result) {
  Json json = {{"check", result.check->name},          {"group", result.check->group}, {"asks", result.check->asks},
               {"verdict", name_of(result.verdict())}, {"seconds", result.seconds},    {"findings", Json::array()}};
  for (const Finding& finding : result.outcome.findings) {
    Json item = {{"verdict", name_of(finding.verdict)}, {"words", finding.words}};
    if (!finding.code.empty()) item["code"] = finding.code;
    if (!finding.fix.empty()) item["fix"] = finding.fix;
    json["findings"].push_back(std::move(item));
  }
  if (!result.outcome.numbers.is_null()) json["numbers"] = result.outcome.numbers;
  return json;
}

std::vector<Result> examine(Context& context, std::span<const std::string> names, const Listener& listener) {
  std::vector<Result> results;
  for (const Check& check : checks()) {
    if (!names.empty() && std::find(names.begin(), names.end(), check.name) == names.end()) continue;
    if (context.stop != nullptr && context.stop->is_asked()) break;
    if (listener.begins) listener.begins(check);
    const std::int64_t start = base::now_ns();
    Result result{.check = &check, .outcome = run_guarded(check, context)};
    result.seconds = base::seconds_since(start);
    context.results.push_back(to_json(result));
    if (listener.ends) listener.ends(result);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace lockstep::check
