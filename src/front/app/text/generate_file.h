// A file of prompts, answered by all ranks.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "front/app/text/text_flags.h"

namespace lockstep::app {

struct FileWish {
  std::filesystem::path file, output;  // JSON lines
  std::optional<std::int64_t> ranks;   // one a GPU, or one on a CPU, if left out
  std::int64_t batch_size = 8;
  bool shard = false;  // ranks hold the model between them
};

// Starts the ranks and writes `output` when all of them are done: input order, each line with its completion. Returns the exit code.
int generate_file(const TextWish& wish, const FileWish& files);
// One prompt, {"prompt": ...} or {"messages": [...]}, by ranks that hold the model between them; its text goes to standard output.
int generate_together(const TextWish& wish, FileWish files, const nlohmann::ordered_json& line);

}  // namespace lockstep::app
