// A file of prompts, answered by all ranks.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "front/app/text/text_ranks.h"

namespace lockstep::app {

struct FileWish : RankWish {
  std::filesystem::path file, output;  // JSON lines
  std::int64_t batch_size = 8;
};

// Starts the ranks and writes `output` when all of them are done: input order, each line with its completion. Returns the exit code.
int generate_file(const TextWish& wish, const FileWish& files);
// One prompt, {"prompt": ...} or {"messages": [...]}, by ranks that hold the model between them; its text goes to standard output.
int generate_together(const TextWish& wish, FileWish files, const nlohmann::ordered_json& line);

}  // namespace lockstep::app
