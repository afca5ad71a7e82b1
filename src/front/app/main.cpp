// The program `lockstep`: reads the command and calls its verb.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/text.h"
#include "front/app/config/config_verb.h"
#include "front/app/verbs.h"
#include "front/catalog/catalog.h"

namespace {

using namespace lockstep;

using Arguments = std::vector<std::string>;

struct Verb {
  std::string_view name;
  int (*run)(std::span<const std::string>);
};
// In the order of --help. `train` shows how it was called, so it takes the program's name too.
constexpr Verb verbs[] = {
    {"ask", app::run_ask_verb},       {"watch", app::run_watch_verb},
    {"runs", app::run_runs_verb},     {"generate", app::run_generate_verb},
    {"chat", app::run_chat_verb},     {"data", app::run_data_verb},
    {"export", app::run_export_verb}, {"merge", app::run_merge_verb},
    {"config", app::run_config_verb}, {"devices", app::run_devices_verb},
    {"bench", app::run_bench_verb},   {"plan", app::run_plan_verb},
    {"ui", app::run_ui_verb},         {"check", app::run_check_verb},
    {"info", app::run_info_verb},     {"explain", app::run_explain_verb},
    {"launch", app::run_launch_verb}, {"completion", app::run_completion_verb},
};

[[noreturn]] void refuse(const std::string& word) {
  if (word.starts_with("-")) throw base::usage_error("lockstep", "{} comes after a verb. Did you mean lockstep train {} ...?", word, word);
  std::vector<std::string> names = {"train"};
  for (const Verb& verb : verbs) names.emplace_back(verb.name);
  const auto near = base::nearest(word, names);
  const std::string last = names.back();
  names.pop_back();
  throw base::usage_error("lockstep", "'{}' is not a verb.{} There are {} and {}; --help says what they do.", word,
                          near ? fmt::format(" Did you mean {}?", *near) : "", base::join(names, ", "), last);
}

int dispatch(const std::string& program, const Arguments& words) {
  const std::string word = words.empty() ? "--help" : words[0];
  const Arguments rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (word == "train") return app::run_train_verb(rest, program);
  for (const Verb& verb : verbs) {
    if (word == verb.name) return verb.run(rest);
  }
  if (word == "--version" || word == "version") return app::run_version_verb(rest);
  if (word == "help" && !rest.empty()) return dispatch(program, {rest[0], "--help"});
  if (word == "--help" || word == "-h" || word == "help") {
    std::fputs(app::general_help().c_str(), stdout);
    return words.empty() ? static_cast<int>(base::ExitCode::usage) : 0;
  }
  refuse(word);
}

int tell(const base::UserError& error) {
  fmt::print(stderr, "{}\n", error.what());
  if (const catalog::Entry* entry = catalog::recognize(error.what())) fmt::print(stderr, "{}.\n", catalog::pointer_to(*entry));
  return static_cast<int>(error.code());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argv[0], {argv + 1, argv + argc});
  } catch (const base::UserError& error) {
    return tell(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return tell(base::refusal(error));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(base::ExitCode::bug);
  }
}
