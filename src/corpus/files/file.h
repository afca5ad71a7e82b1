// One mapped file of records: what Files and Scanner share.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "corpus/files/files.h"

namespace lockstep::corpus {

struct Files::File {
  File(std::filesystem::path path, bool as_text);

  std::filesystem::path path;
  base::MappedFile mapped;
  std::string_view all;
  Layout layout = Layout::jsonl;
  std::size_t begin = 0;            // of the first record
  char separator = ',';             // csv
  std::vector<std::string> header;  // csv
  bool bare_values = false;         // json: one object that is itself a record
  std::string_view closing;         // json: what follows the array

 private:
  void read_header();
  void find_json_layout();
};

}  // namespace lockstep::corpus
