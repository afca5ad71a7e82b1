// The table of layouts: its columns, which rows of them are walked, and what each case is as settings of a run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace lockstep::layouts {

struct Value {
  std::string name;
  std::vector<std::string> settings;  // "section.key=value"
};
struct Column {
  std::string name;
  std::vector<Value> values;  // the first one is the default
  std::size_t in_pairs = 0;   // so many of them meet in pairs; the others come up in rows beyond those
};

// One value of every column.
using Case = std::map<std::string, std::string>;
std::string to_text(const Case& one);

// tests/layouts/table.json.
class Table {
 public:
  static Table read();

  const std::vector<Column>& columns() const { return columns_; }
  // Rows in which every pair of values of two columns meets, each with every shard: siblings follow each other. more: rows beyond those, in
  // which every value comes up, drawn from this seed.
  std::vector<Case> cases(std::size_t more = 0, std::uint64_t seed = 1) const;
  // The same numbers without other ranks: one rank, one micro-batch, no shards.
  static Case reference_of(Case one);
  // Columns that are not at their default.
  std::size_t off_default(const Case& one) const;

  // What the error says, where the case is refused.
  std::optional<std::string> refused(const Case& one) const;
  // Why the case does not work, though it should.
  std::optional<std::string> not_yet(const Case& one) const;

  // folder: where write_data (layouts/data.h) left its files.
  config::RunConfig settings(const Case& one, const std::string& folder) const;

 private:
  struct Rule {
    std::map<std::string, std::vector<std::string>> when;
    std::string text;
  };
  static std::optional<std::string> first(const std::vector<Rule>& rules, const Case& one);

  std::vector<Column> columns_;
  std::vector<std::string> every_case_;
  std::vector<Rule> refused_, not_yet_;
};

int ranks_of(const Case& one);
bool memory_is_tight(const Case& one);
std::int64_t accumulation_of(const Case& one);

}  // namespace lockstep::layouts
