// The one table of options, and finding an option by any of its names.
#include "config/table/option.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

namespace lockstep::config {
namespace {

std::string underscored(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

using Index = std::map<std::string, Match, std::less<>>;

void add(Index& index, std::string spelling, Match match) {
  const auto [place, fresh] = index.emplace(std::move(spelling), match);
  base::check(fresh || (place->second.option == match.option && place->second.when_true == match.when_true),
              fmt::format("the spelling {} names one option", place->first));
}

// Our own keys; aliases at the top level, in the option's own section, and in `trainer`, where programs with one flat list of arguments
// put everything; and, for flat files, the last part of a key at the top level where only one option has it.
Index make_key_index() {
  Index index;
  std::map<std::string_view, int> leaf_count;
  for (const Option& option : options()) {
    add(index, std::string(option.key), {&option});
    ++leaf_count[option.leaf()];
  }
  for (const Option& option : options()) {
    for (const Alias& alias : option.about.aliases) {
      const Match match{&option, alias.when_true};
      add(index, std::string(alias.name), match);
      add(index, fmt::format("trainer.{}", alias.name), match);
      if (!option.section().empty()) add(index, fmt::format("{}.{}", option.section(), alias.name), match);
    }
    if (leaf_count[option.leaf()] == 1) add(index, std::string(option.leaf()), {&option});
  }
  return index;
}

const Index& key_index() {
  static const Index index = make_key_index();
  return index;
}

Index make_flag_index() {
  Index index;
  for (const Option& option : options()) {
    for (const std::string_view flag : option.about.flags) add(index, underscored(flag), {&option});
  }
  return index;
}

const Index& flag_index() {
  static const Index index = make_flag_index();
  return index;
}

std::string did_you_mean(std::string_view name) { return fmt::format(" Did you mean {}?", name); }

// The part after the last dot.
std::string_view leaf_of(std::string_view key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::string_view Option::section() const {
  const std::size_t dot = key.rfind('.');
  return dot == key.npos ? std::string_view() : key.substr(0, dot);
}

std::string_view Option::leaf() const { return leaf_of(key); }

const std::vector<Option>& options() {
  static const std::vector<Option> table = [] {
    std::vector<Option> all;
    for (auto section : {top_level_options, model_options, trainer_options, lora_options, data_options, parallel_options,
                         checkpoint_options, monitor_options, launch_options}) {
      for (Option& entry : section()) all.push_back(std::move(entry));
    }
    return all;
  }();
  return table;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Option& option : options()) {
    if (!option.section().empty() && std::find(names.begin(), names.end(), option.section()) == names.end()) {
      names.emplace_back(option.section());
    }
  }
  return names;
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const Option& option : options()) keys.emplace_back(option.key);
  return keys;
}

const Option& option_of(std::string_view key) {
  const auto found = key_index().find(key);
  base::check(found != key_index().end() && found->second.option->key == key, fmt::format("{} is a key of the table", key));
  return *found->second.option;
}

std::optional<Match> find_key(std::string_view spelled) {
  const auto found = key_index().find(underscored(spelled));
  if (found == key_index().end()) return std::nullopt;
  return found->second;
}

std::optional<Match> find_flag(std::string_view flag) {
  const auto found = flag_index().find(underscored(flag));
  if (found != flag_index().end()) return found->second;
  if (!flag.starts_with("--")) return std::nullopt;
  return find_key(flag.substr(2));
}

std::string suggestion_for_choice(const Option& option, std::string_view text) {
  if (const auto hint = counterpart_of_value(option.key, text)) return " " + *hint;
  constexpr std::size_t shortest = 3;  // one edit makes any "1" a "2"
  std::vector<std::string> spellings;
  std::vector<std::string_view> names;
  for (const Choice& choice : option.choices) {
    spellings.emplace_back(choice.name);
    names.push_back(choice.name);
  }
  for (const Choice& choice : option.choices) {
    for (const std::string_view other : choice.others) {
      if (other.size() < shortest) continue;
      spellings.emplace_back(other);
      names.push_back(choice.name);
    }
  }
  const auto best = base::nearest(text, spellings);
  if (!best) return {};
  const std::string_view name = names[static_cast<std::size_t>(std::find(spellings.begin(), spellings.end(), *best) - spellings.begin())];
  return *best == name ? fmt::format(" Did you mean {}?", *best) : fmt::format(" Did you mean {} ({})?", *best, name);
}

std::string suggestion_for_key(std::string_view spelled) {
  const std::string_view leaf = leaf_of(spelled);
  const std::string_view section = spelled.substr(0, spelled.size() - leaf.size());
  // The right name in the wrong section says most.
  for (const Option& option : options()) {
    if (option.leaf() == leaf) return did_you_mean(option.key);
  }
  std::vector<std::string> here, everywhere;
  for (const auto& [spelling, match] : key_index()) {
    if (match.when_true.empty()) everywhere.push_back(spelling);
    if (!section.empty() && spelling.starts_with(section)) here.push_back(spelling);
  }
  for (const auto* candidates : {&here, &everywhere}) {
    std::vector<std::string> leaves;
    for (const std::string& candidate : *candidates) leaves.emplace_back(leaf_of(candidate));
    if (const auto best = base::nearest(leaf, leaves)) {
      const auto at = std::find(leaves.begin(), leaves.end(), *best) - leaves.begin();
      return did_you_mean(key_index().at((*candidates)[static_cast<std::size_t>(at)]).option->key);
    }
  }
  return {};
}

std::string suggestion_for_flag(std::string_view flag) {
  std::vector<std::string> candidates = {"config", "help"};
  for (const Option& option : options()) {
    for (const std::string_view known : option.about.flags) {
      if (!known.starts_with("--")) continue;
      candidates.emplace_back(known.substr(2));
      if (option.kind == Kind::boolean) candidates.push_back(fmt::format("no-{}", known.substr(2)));
    }
  }
  std::string name(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::replace(name.begin(), name.end(), '_', '-');
  if (const auto best = base::nearest(name, candidates)) return did_you_mean("--" + *best);
  return suggestion_for_key(underscored(name));
}

std::string environment_name(const Option& option) {
  std::string name = "LOCKSTEP_";
  for (const char c : option.key) name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace lockstep::config
