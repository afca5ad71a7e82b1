// `lockstep config show | explain | import | schema | reference`.
#include "front/app/config/config_verb.h"

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/import/import.h"

namespace lockstep::app {
namespace {

constexpr std::string_view usage = R"(lockstep config: settings and their meaning

  lockstep config show [-f FILE] [FLAGS] [section.key=value ...]
      every setting as `lockstep train` with the same arguments would use it, with where it came from
  lockstep config explain [KEY | FLAG | SECTION]
      what a setting means, its type, range, default, flags and other names; without a name, all of them in short
  lockstep config import FILE [--from axolotl|llama-factory|trl|huggingface|torchtune|...] [--output run.yaml]
      a file of another program as a run file, and what became of each of its keys: mapped, noted, ignored or refused
  lockstep config schema
      a JSON Schema of config files, for editors
  lockstep config reference [coming-from]
      all settings as Markdown (docs/configuration.md), or what becomes of other programs' keys (docs/coming_from.md)
)";

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void expect_nothing_more(std::string_view verb, std::span<const std::string> rest) {
  if (!rest.empty())
    throw base::usage_error("config", "`lockstep config {}` does not know what to do with {}. Remove it.", verb, rest.front());
}

int show(std::span<const std::string> args) {
  const config::CommandLine line = config::parse_command_line(args);
  if (line.help) {
    print(usage);
    print("\n");
    print(config::flags_help());
    return 0;
  }
  config::expect_no_leftover(line, "lockstep config show");
  print(config::to_yaml(config::load(line.request)));
  return 0;
}

int explain(std::span<const std::string> names) {
  if (names.empty()) {
    print(config::explain(""));
    return 0;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) print("\n");
    print(config::explain(names[i]));
  }
  return 0;
}

}  // namespace

int run_config_verb(std::span<const std::string> args) {
  if (args.empty() || args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
    print(usage);
    return 0;
  }
  const std::string& verb = args[0];
  const auto rest = args.subspan(1);
  if (verb == "show") return show(rest);
  if (verb == "explain") return explain(rest);
  if (verb == "import") return run_config_import(rest);
  if (verb == "schema") {
    expect_nothing_more(verb, rest);
    print(config::json_schema());
    return 0;
  }
  if (verb == "reference" && !rest.empty() && rest.front() == "coming-from") {
    expect_nothing_more(verb, rest.subspan(1));
    print(config::coming_from_markdown());
    return 0;
  }
  if (verb == "reference") {
    expect_nothing_more(verb, rest);
    print(config::markdown_reference());
    return 0;
  }
  const std::vector<std::string> known = {"show", "explain", "import", "schema", "reference"};
  const auto best = base::nearest(verb, known);
  throw base::usage_error(
      "config", "`lockstep config {}` does not exist. {}", verb,
      best ? fmt::format("Did you mean `lockstep config {}`?", *best) : "There are show, explain, import, schema and reference.");
}

}  // namespace lockstep::app
