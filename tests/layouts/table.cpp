// Reads the table, makes cases of it and settings of a case.
#include "layouts/table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "layouts/data.h"
#include "layouts/pairs.h"
#include "support/source_folder/source_folder.h"

namespace lockstep::layouts {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> strings(const Json& list) { return list.get<std::vector<std::string>>(); }

const Value& value_of(const Column& column, const Case& one) {
  for (const Value& value : column.values)
    if (value.name == one.at(column.name)) return value;
  throw base::Bug(fmt::format("column {} has no {}", column.name, one.at(column.name)));
}

}  // namespace

std::string to_text(const Case& one) {
  std::vector<std::string> words;
  for (const auto& [column, value] : one) words.push_back(fmt::format("{} {}", column, value));
  return base::join(words, ", ");
}

int ranks_of(const Case& one) { return std::stoi(one.at("ranks")); }
bool memory_is_tight(const Case& one) { return one.at("memory") == "tight"; }
std::int64_t accumulation_of(const Case& one) { return std::stoi(one.at("accumulation")); }

Table Table::read() {
  const Json json = base::parse_json(base::read_text(test::source_folder() + "/tests/layouts/table.json"));
  Table table;
  table.every_case_ = strings(json.at("every case"));
  for (const Json& column : json.at("columns")) {
    Column& added = table.columns_.emplace_back(Column{.name = column.at("name"), .values = {}});
    const auto add = [&](const Json& values) {
      for (const Json& value : values)
        added.values.push_back({value.at("name"), value.contains("settings") ? strings(value.at("settings")) : std::vector<std::string>{}});
    };
    add(column.at("values"));
    added.in_pairs = added.values.size();
    if (column.contains("more values")) add(column.at("more values"));
  }
  const auto read_rules = [&](const char* name, const char* text) {
    std::vector<Rule> rules;
    for (const Json& rule : json.at(name)) {
      Rule& added = rules.emplace_back(Rule{.when = {}, .text = rule.at(text)});
      for (const auto& [column, values] : rule.at("when").items()) added.when[column] = strings(values);
    }
    return rules;
  };
  table.refused_ = read_rules("refused", "error");
  table.not_yet_ = read_rules("not yet", "because");
  return table;
}

std::vector<Case> Table::cases(std::size_t more, std::uint64_t seed) const {
  std::vector<std::size_t> in_pairs, sizes;
  for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
    in_pairs.push_back(columns_[i].in_pairs);
    sizes.push_back(columns_[i].values.size());
  }
  const Column& shards = columns_.back();
  std::vector<Case> all;
  std::vector<std::vector<std::size_t>> rows = covering_rows(in_pairs);
  add_drawn_rows(rows, sizes, more, seed);
  for (const std::vector<std::size_t>& row : rows) {
    for (const Value& shard : shards.values) {
      Case& one = all.emplace_back();
      for (std::size_t i = 0; i < row.size(); ++i) one[columns_[i].name] = columns_[i].values[row[i]].name;
      one[shards.name] = shard.name;
    }
  }
  return all;
}

Case Table::reference_of(Case one) {
  one["ranks"] = one["accumulation"] = "1";
  one["shard"] = "none";
  one["memory"] = "plenty";
  return one;
}

std::size_t Table::off_default(const Case& one) const {
  return static_cast<std::size_t>(
      std::count_if(columns_.begin(), columns_.end(), [&](const Column& c) { return one.at(c.name) != c.values.front().name; }));
}

std::optional<std::string> Table::first(const std::vector<Rule>& rules, const Case& one) {
  for (const Rule& rule : rules) {
    const bool holds = std::all_of(rule.when.begin(), rule.when.end(), [&](const auto& condition) {
      return std::find(condition.second.begin(), condition.second.end(), one.at(condition.first)) != condition.second.end();
    });
    if (holds) return rule.text;
  }
  return std::nullopt;
}

std::optional<std::string> Table::refused(const Case& one) const { return first(refused_, one); }
std::optional<std::string> Table::not_yet(const Case& one) const { return first(not_yet_, one); }

config::RunConfig Table::settings(const Case& one, const std::string& folder) const {
  std::vector<std::string> all = every_case_;
  for (const Column& column : columns_) {
    if (column.name == "ranks" || column.name == "accumulation") continue;  // numbers of their own
    const Value& value = value_of(column, one);
    all.insert(all.end(), value.settings.begin(), value.settings.end());
  }
  // A step is an epoch: where ranks and micro-batches do not divide its samples, the rest of a global batch has weight 0.
  const DataFiles files = data_files(folder, one.at("model and data"));
  all.push_back(fmt::format("trainer.gradient_accumulation={}", accumulation_of(one)));
  all.push_back(fmt::format("trainer.batch_size={}", base::ceil_div(files.samples, ranks_of(one) * accumulation_of(one))));
  all.insert(all.end(), files.settings.begin(), files.settings.end());

  config::Request request;
  for (const std::string& setting : all) {
    const std::size_t equals = setting.find('=');
    request.assignments.push_back({setting.substr(0, equals), setting.substr(equals + 1), setting});
  }
  return config::load(request).values;
}

}  // namespace lockstep::layouts
