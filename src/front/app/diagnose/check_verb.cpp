// `lockstep check`: is this machine fit to train, told line by line as it goes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "front/app/verbs.h"
#include "front/check/check.h"
#include "front/job/identity.h"
#include "front/job/naming.h"
#include "front/launch/meet/machines.h"
#include "front/launch/meet/socket.h"
#include "front/show/signals.h"

namespace lockstep::app {
namespace {

using check::Verdict;
using Json = nlohmann::ordered_json;

constexpr const char* help_text = R"(lockstep check [--json] [--quick] [--only NAME,...] [--nodes N] [flags of lockstep train]

Looks, step by step, whether this machine can train: programs and libraries, driver and GPUs, how they are connected, ports,
memory, disks and limits; then starts real ranks that exchange numbers whose sums are known, and train five steps. What is wrong
comes with a fix and a code (`lockstep explain CODE`). Works without a GPU too. Flags of `lockstep train` (-f, --model, --data,
--gpus, --ranks, --output, --port, ...) say which run it is about.

  --json          one line of JSON a check, the sum at the end
  --quick         starts no ranks, and looks at files and devices only: about a second
  --only A,B      only these checks; --only list names them
  --nodes N       across machines: run it on each, with --node-rank and --master-addr as for `lockstep train --nnodes N`, and
                  --output on a disk that all share; machine 0 shows what all have found

Exit status: 0 all is well, 1 there are warnings, 3 something failed.
)";

constexpr int exit_warnings = 1;

struct Wish {
  bool json = false, quick = false, list = false;
  std::vector<std::string> only;
  std::vector<std::string> rest;  // for the settings
};

Wish read_wish(std::span<const std::string> args) {
  Wish wish;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string name = args[i].substr(0, args[i].find('='));
    const auto value = [&]() -> std::string {
      if (name.size() < args[i].size()) return args[i].substr(name.size() + 1);
      if (i + 1 >= args.size()) throw base::usage_error("check", "{} needs a value. `lockstep check --help` tells which.", name);
      return args[++i];
    };
    if (name == "--json") {
      wish.json = true;
    } else if (name == "--quick") {
      wish.quick = true;
    } else if (name == "--only") {
      wish.only = base::split(value(), ',');
    } else if (name == "--nodes") {
      wish.rest.push_back("--nnodes");
      wish.rest.push_back(value());
    } else {
      wish.rest.push_back(args[i]);
    }
  }
  return wish;
}

std::vector<std::string> names_of_checks(bool quick) {
  std::vector<std::string> names;
  for (const check::Check& one : check::checks()) {
    if (!quick || (one.group != "ranks" && one.name != "start" && one.name != "model")) names.emplace_back(one.name);
  }
  return names;
}

void expect_known(const std::vector<std::string>& only) {
  const std::vector<std::string> names = names_of_checks(false);
  for (const std::string& one : only) {
    if (std::find(names.begin(), names.end(), one) != names.end()) continue;
    const auto near = base::nearest(one, names);
    throw base::usage_error("check", "--only {}: there is no such check.{} There are {}.", one,
                            near ? fmt::format(" Did you mean {}?", *near) : "", base::join(names, ", "));
  }
}

Verdict verdict_named(const std::string& name) {
  for (const Verdict verdict : {Verdict::ok, Verdict::not_here, Verdict::warning}) {
    if (check::name_of(verdict) == name) return verdict;
  }
  return Verdict::failed;
}

const char* color_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok: return "\033[32m";
    case Verdict::not_here: return "\033[2m";
    case Verdict::warning: return "\033[33m";
    case Verdict::failed: return "\033[31m";
  }
  return "";
}

// Lines as checks end; on a terminal the one that runs is named meanwhile.
class Lines {
 public:
  Lines(bool json, bool terminal) : json_(json), terminal_(terminal) {}

  void begins(const check::Check& one) {
    if (json_) return;
    if (one.group != group_) fmt::print("{}{}\n", group_.empty() ? "" : "\n", one.group);
    group_ = one.group;
    if (terminal_) fmt::print("  ...      {:<14} {}?", one.name, one.asks);
    std::fflush(stdout);
  }

  void ends(const check::Result& result) {
    if (json_) {
      print_json(check::to_json(result));
      return;
    }
    clear();
    std::string_view name = result.check->name;
    for (const check::Finding& finding : result.outcome.findings) {
      line(check::name_of(finding.verdict), finding.verdict, name, finding.words, std::string(finding.code), finding.fix);
      name = "";
    }
    std::fflush(stdout);
  }

  // What another machine has found.
  void machine(int node, const std::string& host, const Json& results) {
    if (json_) {
      print_json({{"machine", node}, {"host", host}, {"results", results}});
      return;
    }
    clear();
    fmt::print("\nmachine {} ({})\n", node, host);
    for (const Json& result : results) {
      std::string name = result.value("check", "");
      for (const Json& finding : result.value("findings", Json::array())) {
        const std::string verdict = finding.value("verdict", "");
        line(verdict, verdict_named(verdict), name, finding.value("words", ""), finding.value("code", ""), finding.value("fix", ""));
        name.clear();
      }
    }
    fmt::print("\n{}\n", group_);
  }

  void say(std::string_view text) {
    if (!json_) clear();
    fmt::print(stderr, "{}\n", text);
  }

  static void print_json(const Json& json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }

 private:
  void clear() const {
    if (terminal_) fmt::print("\r\033[K");
  }

  void line(std::string_view word, Verdict verdict, std::string_view name, const std::string& words, const std::string& code,
            const std::string& fix) const {
    const std::string indent(26, ' ');
    std::string text;
    for (const std::string& part : base::split(words, '\n')) text += (text.empty() ? "" : "\n" + indent) + part;
    fmt::print("  {}{:<8}{} {:<14} {}\n", terminal_ ? color_of(verdict) : "", word, terminal_ ? "\033[0m" : "", name, text);
    if (!fix.empty()) fmt::print("{}fix: {}{}\n", indent, fix, code.empty() ? "" : fmt::format(" ({})", code));
  }

  bool json_, terminal_;
  std::string_view group_;
};

// All meetings of a check share one secret, and machine 0 says how the others are started: as it was, for what they look at must agree.
void invite(check::Context& context, std::span<const std::string> args, Lines& lines) {
  const config::ParallelConfig& parallel = context.settings.values.parallel;
  if (parallel.nnodes < 2 || parallel.node_rank > 0 || launch::lookup(context.environment, "LOCKSTEP_SECRET")) return;
  const std::string secret = launch::meet::fresh_secret();
  context.environment["LOCKSTEP_SECRET"] = secret;
  const std::string address = parallel.master_addr == "127.0.0.1" ? launch::meet::host_name() : parallel.master_addr;
  std::vector<std::string> words(args.begin(), args.end());
  std::erase(words, "--json");
  lines.say(fmt::format("start it on the other machine{} with{}\n  LOCKSTEP_SECRET={} {}", parallel.nnodes > 2 ? "s" : "",
                        parallel.nnodes > 2 ? " (--node-rank 2, 3, ... on the next)" : "", secret,
                        job::command_for_machine("lockstep check", words, address)));
}

int conclude(const std::vector<check::Result>& results, std::map<Verdict, int> counts, bool json, bool stopped) {
  for (const check::Result& result : results) ++counts[result.verdict()];
  const int failures = counts[Verdict::failed], warnings = counts[Verdict::warning];
  const int status = failures > 0 || stopped ? static_cast<int>(base::ExitCode::machine) : warnings > 0 ? exit_warnings : 0;
  if (json) {
    Lines::print_json(
        {{"sum", {{"ok", counts[Verdict::ok]}, {"not here", counts[Verdict::not_here]}, {"warning", warnings}, {"failed", failures}}},
         {"all_is_well", status == 0},
         {"build", job::build_id()}});
    return status;
  }
  const std::string others = fmt::format("{} ok, {} not here", counts[Verdict::ok], counts[Verdict::not_here]);
  if (status == 0)
    fmt::print("\nall is well: {}\n", others);
  else
    fmt::print("\n{} failed, {} warning{}; {}{}\n", failures, warnings, warnings == 1 ? "" : "s", others, stopped ? "; stopped" : "");
  return status;
}

}  // namespace

int run_check_verb(std::span<const std::string> args) {
  const Wish wish = read_wish(args);
  const config::CommandLine line = config::parse_command_line(wish.rest);
  if (line.help) {
    std::fputs((help_text + std::string("\nFlags of lockstep train:\n\n") + config::flags_help()).c_str(), stdout);
    return 0;
  }
  config::expect_no_leftover(line, "lockstep check");
  if (wish.only == std::vector<std::string>{"list"}) {
    for (const check::Check& one : check::checks()) fmt::print("{:<14} {}?\n", one.name, one.asks);
    return 0;
  }
  expect_known(wish.only);
  Lines lines(wish.json, ::isatty(STDOUT_FILENO) == 1);
  const launch::StopWish stop;
  const show::Signals signals([&](int signal) { stop.ask(signal); });
  check::Context context = check::make_context(line.request, launch::process_environment());
  context.stop = &stop;
  context.say = [&](std::string_view text) { lines.say(text); };
  invite(context, args, lines);
  std::map<Verdict, int> elsewhere;
  context.met = [&](std::span<const launch::meet::Facts> machines) {
    context.met = {};  // once is enough: ranks meet again for training
    for (const launch::meet::Facts& facts : machines) {
      if (facts.node == 0) continue;
      const Json found = base::parse_json(facts.remark);
      for (const Json& result : found) ++elsewhere[verdict_named(result.value("verdict", ""))];
      lines.machine(facts.node, facts.host, found);
    }
  };
  std::vector<std::string> names = wish.only.empty() ? names_of_checks(wish.quick) : wish.only;
  if (!context.mistake.empty()) names.emplace_back("settings");  // whatever was asked for: the others go by what a plain run would do
  const std::vector<check::Result> results = check::examine(
      context, names,
      {.begins = [&](const check::Check& one) { lines.begins(one); }, .ends = [&](const check::Result& one) { lines.ends(one); }});
  return conclude(results, elsewhere, wish.json, stop.is_asked());
}

}  // namespace lockstep::app
