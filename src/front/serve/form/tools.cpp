// Settings become arguments, printed JSON becomes the answer.
#include "front/serve/form/tools.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "config/config.h"
#include "front/serve/form/passing_file.h"
#include "front/serve/children/process.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr double inspect_s = 300, plan_s = 60;

Json printed(const std::vector<std::string>& arguments, double timeout_s) {
  auto json = base::json_if_any(output_of(arguments, timeout_s));
  if (!json) throw base::run_error("ui", "`lockstep {}` printed no JSON.", arguments.front());
  return std::move(*json);
}

}  // namespace

Json inspect_data(const Folders& folders, const Values& values, int samples) {
  expect_own_keys(values);
  folders.expect_allowed(values);
  std::vector<std::string> words = {"data", "inspect", "--json", "--samples", std::to_string(samples)};
  for (const auto& [key, value] : values) {
    if (key.starts_with("data.") || key.starts_with("model.")) words.push_back(key + "=" + value);
  }
  return printed(words, inspect_s);
}

Json plan_placements(const Folders& folders, const Values& values, const GpusAsked& asked) {
  expect_own_keys(values);
  folders.expect_allowed(values);
  config::Request request{.file = {}, .environment = config::process_environment(), .assignments = {}};
  for (const auto& [key, value] : values) request.assignments.push_back({key, value, key});
  const PassingFile file(config::to_yaml(config::load(request)));
  std::vector<std::string> words = {"plan", "-f", file.path(), "--gpus=" + asked.gpus, "--json"};
  if (!asked.memory.empty()) words.push_back("--memory=" + asked.memory);
  return printed(words, plan_s);
}

}  // namespace lockstep::serve
