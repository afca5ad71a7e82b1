// A file of prompts, answered by all ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "front/app/text/text_flags.h"

namespace lockstep::app {

struct FileWish {
  std::filesystem::path file, output;  // JSON lines
  std::optional<std::int64_t> ranks;   // one a GPU, or one on a CPU, if left out
  std::int64_t batch_size = 8;
};

// Starts the ranks and writes `output` when all of them are done: input order, each line with its completion. Returns the exit code.
int generate_file(const TextWish& wish, const FileWish& files);

}  // namespace lockstep::app
