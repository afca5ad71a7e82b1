// Texts about the options for people: `config explain`, the flags of --help, docs/configuration.md. All made from the table.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

struct SectionText {
  std::string_view name;
  std::string_view says;
};

constexpr SectionText section_texts[] = {
    {"", "The run itself. These keys stand at the top level of a file."},
    {"model", "The shape of the network: a dense decoder (RMSNorm, rotary positions, grouped-query attention, SwiGLU)."},
    {"trainer", "How the model is trained. batch_size is per device."},
    {"trainer.distributed", "Which devices train together and what carries their gradients."},
    {"model.rope_scaling", "How rotary positions are stretched beyond the length a model was first trained for."},
    {"lora", "Low-rank adapters beside frozen weights, in PEFT's terms; what is saved is a PEFT folder."},
    {"data", "What the model is trained on."},
    {"parallel", "Ranks, machines and how gradients travel between them."},
    {"checkpoint", "Saving and going on. How often and how many, trainer.save_interval and trainer.max_checkpoints say."},
    {"monitor", "What is watched and shown."},
    {"launch", "How this one command starts the run."},
};

std::string_view says_of(std::string_view section) {
  for (const SectionText& text : section_texts) {
    if (text.name == section) return text.says;
  }
  return {};
}

// Sections in the order in which to show them: the table's, each with all its options.
std::vector<std::pair<std::string_view, std::vector<const Option*>>> by_section() {
  std::vector<std::pair<std::string_view, std::vector<const Option*>>> groups;
  for (const Option& option : options()) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == option.section(); });
    if (group == groups.end()) group = groups.insert(groups.end(), {option.section(), {}});
    group->second.push_back(&option);
  }
  return groups;
}

std::string type_and_range(const Option& option) {
  std::string text = type_name(option);
  if (const std::string range = option.about.range.text(); !range.empty()) text += ", " + range;
  return text;
}

std::string alias_text(const Alias& alias) {
  return alias.when_true.empty() ? std::string(alias.name) : fmt::format("{}: true (= {})", alias.name, alias.when_true);
}

std::string joined(const std::vector<std::string_view>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string other_spellings(const Option& option) {
  std::string text;
  for (const Choice& choice : option.choices) {
    if (choice.others.empty()) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : "; ", choice.name, joined(choice.others, ", "));
  }
  return text;
}

std::string explain_option(const Option& option) {
  std::string text = fmt::format("{}\n  {}\n", option.key, option.about.says);
  const auto line = [&](std::string_view label, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<16} {}\n", label, value);
  };
  line("type", type_and_range(option));
  line("spellings", other_spellings(option));
  line("unit", std::string(option.about.unit));
  line("default", write_value(option, option.get(RunConfig{})));
  if (!option.about.zero.empty()) {
    const bool empty = option.kind == Kind::text || option.is_list();
    std::string words;
    for (const std::string_view word : option.about.zero_words) words += fmt::format(", {}", word);
    line(empty ? "empty" + words : "0" + words, std::string(option.about.zero));
  }
  const std::string example =
      option.about.example.empty() ? write_value(option, option.get(RunConfig{})) : std::string(option.about.example);
  std::string in_file = fmt::format("{}: {}", option.leaf(), example);
  for (std::string_view section = option.section(); !section.empty();) {
    const std::size_t dot = section.rfind('.');
    in_file = fmt::format("{}: {{ {} }}", section.substr(dot + 1), in_file);
    section = dot == section.npos ? std::string_view() : section.substr(0, dot);
  }
  line("in a file", in_file);
  std::string bare = example;
  if (option.is_list()) std::erase_if(bare, [](char c) { return c == '[' || c == ']' || c == ' '; });
  line("typed", fmt::format("{}={}", option.key, bare));
  line("flag", joined(option.about.flags, ", "));
  if (option.kind == Kind::boolean && !option.about.flags.empty()) line("", fmt::format("--no-{}", option.about.flags[0].substr(2)));
  line("environment", environment_name(option));
  std::vector<std::string> aliases;
  for (const Alias& alias : option.about.aliases) aliases.push_back(alias_text(alias));
  line("also", base::join(aliases, ", "));
  return text;
}

std::string explain_section(std::string_view section) {
  std::string text = fmt::format("{}\n  {}\n\n", section.empty() ? "top level" : section, says_of(section));
  for (const Option& option : options()) {
    if (option.section() == section) text += fmt::format("  {:<34} {}\n", option.key, option.about.says);
  }
  return text;
}

std::string explain_everything() {
  std::string text;
  for (const auto& [section, group] : by_section()) text += fmt::format("{}{}", text.empty() ? "" : "\n", explain_section(section));
  return text;
}

struct FlagGroup {
  std::string_view title;
  std::vector<std::string_view> keys;
};

const std::vector<FlagGroup>& flag_groups() {
  static const std::vector<FlagGroup> groups = {
      {"Run", {"name", "output", "checkpoint.resume", "data.allow_new_data", "launch.dry_run", "monitor.headless"}},
      {"Devices and ranks",
       {"trainer.distributed.gpu_ids", "launch.num_gpus", "parallel.ranks", "trainer.target_device", "trainer.distributed.backend",
        "parallel.threads", "parallel.max_restarts", "launch.spawn"}},
      {"Models larger than one GPU", {"parallel.shard", "parallel.replicate"}},
      {"Several machines", {"parallel.nnodes", "parallel.node_rank", "parallel.master_addr", "parallel.master_port"}},
      {"Data", {"data.path", "data.validation_path", "data.seq_len", "data.prefetch", "data.distributed_loading"}},
  };
  return groups;
}

std::string flag_placeholder(const Option& option) {
  switch (option.kind) {
    case Kind::boolean: return "";
    case Kind::integer: return " N";
    case Kind::number: return " X";
    case Kind::integers: return " 0,1";
    case Kind::texts: return " A,B";
    case Kind::choice: {
      std::vector<std::string_view> names;
      for (const Choice& choice : option.choices) names.push_back(choice.name);
      return " " + joined(names, "|");
    }
    case Kind::text: break;
  }
  const std::string_view leaf = option.leaf();
  if (option.key == "checkpoint.resume") return " PATH|auto";
  if (leaf == "path" || leaf == "validation_path") return " FILE";
  if (leaf == "output") return " FOLDER";
  return leaf == "master_addr" ? " HOST" : " NAME";
}

std::string help_line(std::string_view left, std::string_view says) {
  constexpr std::size_t column = 42;
  if (left.size() >= column) return fmt::format("  {}\n  {:{}}{}\n", left, "", column, says);
  return fmt::format("  {:<{}}{}\n", left, column, says);
}

std::string flag_line(const Option& option) {
  std::string spelled = joined(option.about.flags, ", ");
  if (option.kind == Kind::boolean && option.get(RunConfig{}) == Value(true))
    spelled = fmt::format("--[no-]{}", option.about.flags[0].substr(2));
  std::string says(option.about.says);
  if (!option.about.zero.empty() && !option.about.zero_words.empty())
    says += fmt::format(" {} = {}.", option.about.zero_words[0], option.about.zero);
  else if (option.kind == Kind::integer && !option.about.zero.empty())
    says += fmt::format(" 0 = {}.", option.about.zero);
  return help_line(spelled + flag_placeholder(option), says);
}

std::string markdown_escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '|')
      result += "\\|";
    else
      result += c;
  }
  return result;
}

std::string markdown_row(const Option& option) {
  std::string says = markdown_escape(option.about.says);
  if (!option.about.zero.empty()) {
    const bool empty = option.kind == Kind::text || option.is_list();
    std::string words;
    for (const std::string_view word : option.about.zero_words) words += fmt::format(" or `{}`", word);
    says += fmt::format(" {}{}: {}.", empty ? "Empty" : "`0`", words, markdown_escape(option.about.zero));
  }
  std::string flags;
  for (const std::string_view flag : option.about.flags) flags += fmt::format("{}`{}`", flags.empty() ? "" : " ", flag);
  std::string aliases;
  for (const Alias& alias : option.about.aliases) aliases += fmt::format("{}`{}`", aliases.empty() ? "" : " ", alias.name);
  std::string type = type_and_range(option);
  if (!option.about.unit.empty()) type += fmt::format(" ({})", option.about.unit);
  return fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", option.leaf(), markdown_escape(type),
                     write_value(option, option.get(RunConfig{})), says, flags, aliases);
}

std::string markdown_choices() {
  std::string text;
  for (const Option& option : options()) {
    const std::string spellings = other_spellings(option);
    if (!spellings.empty()) text += fmt::format("- `{}`: {}\n", option.key, spellings);
  }
  return text;
}

constexpr std::string_view markdown_opening = R"(# Configuration

<!-- Made by `lockstep config reference`; `make check` compares. Change the table in src/config/table/ instead. -->

A run is described by one file, YAML or JSON:

```yaml
model:
  hidden_size: 384
  num_layers: 6
trainer:
  learning_rate: 1.5e-3
  distributed:
    backend: gloo
```

`lockstep train -f models/nano.yaml --dtype bf16 trainer.max_steps=200` starts from that file and changes two settings.

**Where values come from.** Later ones win:

1. the defaults below;
2. the file after `-f`, `--config` or `--config-path`;
3. environment variables: `LOCKSTEP_`, the section and the key, as in `LOCKSTEP_TRAINER_LEARNING_RATE=3e-4`;
4. the command line: flags, and `section.key=value` for any key. The last one wins.

`lockstep config show -f FILE ...` prints every value with its source, `lockstep config explain KEY` all about one setting,
`lockstep config schema` a JSON Schema for editors.

**Spelling.** Flags may be written with `-` or `_`, as `--flag value` or `--flag=value`; switches also as `--no-flag`. Keys may stand in
their section, dotted (`trainer.seed: 1`), or, where only one section has them, at the top level. The names in the column *also* are
those of other programs; they work at the top level, in their section and in `trainer`. A key without a value keeps its default.

**Mistakes** are all shown at once, with file and line, and nothing starts. Settings that other programs have and Lockstep does not have
yet (mixture of experts, tensor parallelism, ...) are refused by name, unless their value switches them off.

**Batch.** Of `trainer.batch_size`, `trainer.gradient_accumulation` and `trainer.global_batch_size` any may be left out; global batch =
batch x accumulation x ranks. What does not divide is an error that names the nearest values that do.
)";

}  // namespace

std::string explain(std::string_view name) {
  const std::string wanted(name);
  if (wanted.empty()) return explain_everything();
  for (const std::string& section : section_names()) {
    if (section == wanted) return explain_section(section);
  }
  const auto match = wanted.starts_with("-") ? find_flag(wanted) : find_key(wanted);
  if (match) return explain_option(*match->option);
  for (const Option& option : options()) {
    if (environment_name(option) == wanted) return explain_option(option);
  }
  if (const auto what = not_built_yet(wanted)) throw base::usage_error("config", "{}: {} is not built yet.", wanted, *what);
  std::string suggestion = wanted.starts_with("-") ? suggestion_for_flag(wanted) : suggestion_for_key(wanted);
  if (const auto section = base::nearest(wanted, section_names()); section && suggestion.empty())
    suggestion = fmt::format(" Did you mean {}?", *section);
  throw base::usage_error("config", "{} is not a setting.{}", wanted,
                          suggestion.empty() ? " `lockstep config explain` lists all settings." : suggestion);
}

std::string flags_help() {
  std::string text = help_line("-f, --config FILE", "Settings of the run, YAML or JSON, such as models/nano.yaml.");
  std::vector<std::string_view> shown;
  for (const FlagGroup& group : flag_groups()) {
    text += fmt::format("\n{}:\n", group.title);
    for (const std::string_view key : group.keys) {
      text += flag_line(option_of(key));
      shown.push_back(key);
    }
  }
  text += "\nTraining:\n";
  for (const Option& option : options()) {
    if (!option.about.flags.empty() && std::find(shown.begin(), shown.end(), option.key) == shown.end()) text += flag_line(option);
  }
  return text + "\nAny setting:\n" + help_line("section.key=value", "`lockstep config explain` lists them all.");
}

std::string markdown_reference() {
  std::string text(markdown_opening);
  for (const auto& [section, group] : by_section()) {
    text += fmt::format("\n## {}\n\n{}\n\n| key | type | default | meaning | flag | also |\n|---|---|---|---|---|---|\n",
                        section.empty() ? "Top level" : fmt::format("`{}`", section), says_of(section));
    for (const Option* option : group) text += markdown_row(*option);
  }
  text += "\n## Other spellings of choices\n\nUpper and lower case, `-` and `_` make no difference.\n\n" + markdown_choices();
  return text;
}

}  // namespace lockstep::config
