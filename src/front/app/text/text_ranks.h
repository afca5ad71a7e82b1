// Ranks of this machine that write text: each with a whole model, or together with one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "front/app/text/text_flags.h"
#include "front/job/setup.h"

namespace lockstep::app {

struct RankWish {
  std::optional<std::int64_t> ranks;  // if left out one a GPU; on a CPU one, or two that hold the model between them
  bool shard = false;                 // ranks hold the model between them
};
// A job with its worker, complete but for its folder and the workers' verb: `job.arguments` say which model, and how it chooses its words.
job::Setup set_up_ranks(const std::string& verb, const TextWish& wish, const RankWish& ranks, const launch::Environment& environment);

// `lockstep chat --shard --json`: rank 0 has this process's standard input and output, and its SIGINT. Returns the exit code.
int chat_together(const TextWish& wish, const RankWish& ranks);

}  // namespace lockstep::app
