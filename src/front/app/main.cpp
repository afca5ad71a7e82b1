// The program `lockstep`: reads the command and calls its verb.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "front/app/config_verb.h"
#include "front/app/verbs.h"

namespace {

using namespace lockstep;

int dispatch(const std::string& program, const std::vector<std::string>& words) {
  const std::vector<std::string> verbs = {"train", "generate", "export", "data", "config", "devices", "bench", "plan", "help"};
  const std::string verb = words.empty() ? "--help" : words[0];
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (verb == "train") return app::run_train_verb(rest, program);
  if (verb == "generate") return app::run_generate_verb(rest);
  if (verb == "export") return app::run_export_verb(rest);
  if (verb == "data") return app::run_data_verb(rest);
  if (verb == "config") return app::run_config_verb(rest);
  if (verb == "devices") return app::run_devices_verb(rest);
  if (verb == "bench") return app::run_bench_verb(rest);
  if (verb == "plan") return app::run_plan_verb(rest);
  if (verb == "--version" || verb == "version") {
    std::puts("lockstep " LOCKSTEP_VERSION);
    return 0;
  }
  if (verb == "help" && !rest.empty()) return dispatch(program, {rest[0], "--help"});
  if (verb == "--help" || verb == "-h" || verb == "help") {
    std::fputs(app::general_help().c_str(), stdout);
    return words.empty() ? static_cast<int>(base::ExitCode::usage) : 0;
  }
  if (verb.starts_with("-")) throw base::usage_error("lockstep", "{} comes after a verb. Did you mean lockstep train {} ...?", verb, verb);
  const auto near = base::nearest(verb, verbs);
  throw base::usage_error("lockstep",
                          "'{}' is not a verb.{} There are train, generate, export, data, config, devices, bench and plan; --help says what they do.",
                          verb, near ? fmt::format(" Did you mean {}?", *near) : "");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argv[0], {argv + 1, argv + argc});
  } catch (const base::UserError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(base::ExitCode::bug);
  }
}
