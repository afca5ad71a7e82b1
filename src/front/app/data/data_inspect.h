// What is in a dataset, as numbers: the part of `lockstep data inspect` that knows no terminal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "corpus/prepare/cache.h"
#include "corpus/files/files.h"

namespace lockstep::app {

struct Inspection {
  std::string files;
  std::int64_t seq_len = 0;
  corpus::Counts counts;
  std::int64_t shortest = 0, median = 0, most = 0, longest = 0;         // tokens of a sample; 95% have at most `most`
  std::vector<std::pair<std::int64_t, std::int64_t>> histogram;         // up to so many tokens: how many samples
  std::int64_t duplicates = 0;                                          // samples that an earlier one equals
  std::vector<std::pair<std::string, std::string>> duplicate_examples;  // "chat.jsonl:17", "chat.jsonl:3"
  std::int64_t packed_rows = 0;
  double packed_fill = 0, plain_fill = 0;  // share of positions that hold tokens, packed and one sample a row
};
Inspection inspect(const corpus::Files& files, const corpus::Cache& cache, std::int64_t seq_len);

std::string to_text(const Inspection& inspection);
nlohmann::ordered_json to_json(const Inspection& inspection);

}  // namespace lockstep::app
