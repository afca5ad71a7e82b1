// `lockstep --version`: one line; --verbose adds how it was built, what it runs with and whose software is inside.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "build_id.h"  // made by cmake/build_id.cmake
#include "front/app/verbs.h"
#include "front/launch/libtorch.h"
#include "third_party.h"  // made by tools/third_party.py

namespace lockstep::app {
namespace {

constexpr const char* one_line = "lockstep " LOCKSTEP_VERSION " (" LOCKSTEP_BUILD ")";

// Where LibTorch is, or why there is none; never an error: this is what one asks when something is missing.
std::string libtorch_line(const std::filesystem::path& program) {
  try {
    const launch::LibTorch found = launch::find_libtorch(launch::process_environment(), program);
    return fmt::format("{} in {} (found by {})", found.version, found.root.string(), found.found_by);
  } catch (const base::UserError& error) {
    return error.what();
  }
}

std::string cuda_line() {
  const std::string_view architectures = LOCKSTEP_BUILT_FOR;
  return architectures.empty() ? "none: built with CUDA=0" : fmt::format("kernels for compute capabilities {}", architectures);
}

std::string verbose() {
  const auto program = launch::own_program();
  std::string text = fmt::format("{}\n", one_line);
  const auto line = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<10}{}\n", name, value); };
  line("program", program.string());
  line("compiler", "g++ " __VERSION__);
  line("CUDA", cuda_line());
  line("LibTorch", libtorch_line(program));
  line("license", "Apache-2.0");
  text += "  inside it, of others:\n";
  for (const ThirdParty& one : third_party) text += fmt::format("    {:<42}{:<20}{}\n", one.name, one.version, one.license);
  return text;
}

std::string as_json() {
  nlohmann::ordered_json json = {
      {"version", LOCKSTEP_VERSION}, {"commit", LOCKSTEP_COMMIT}, {"build", LOCKSTEP_BUILD}, {"compiler", __VERSION__}};
  json["cuda"] = LOCKSTEP_BUILT_FOR;
  json["torch"] = launch::torch_version;
  json["license"] = "Apache-2.0";
  for (const ThirdParty& one : third_party)
    json["third_party"].push_back({{"name", one.name}, {"version", one.version}, {"license", one.license}});
  return json.dump() + "\n";
}

}  // namespace

int run_version_verb(std::span<const std::string> args) {
  std::string text = fmt::format("{}\n", one_line);
  for (const std::string& word : args) {
    if (word == "--verbose" || word == "-v") {
      text = verbose();
    } else if (word == "--json") {
      text = as_json();
    } else {
      throw base::usage_error("lockstep", "--version takes --verbose or --json, not {}.", word);
    }
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace lockstep::app
