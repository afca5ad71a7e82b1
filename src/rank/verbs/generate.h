// Text from a model: one prompt to the terminal, a file of prompts spread over ranks, or a conversation.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <string>

#include "rank/comm/comm.h"
#include "rank/verbs/arguments.h"
#include "rank/verbs/text_model.h"
#include "journal/page.h"

namespace lockstep::verbs {

struct GenerateRequest {
  ModelSource source;
  std::string prompt, chat, system;  // chat: the prompt is a user's message
  bool is_chat = false;
  bool stream = true;
  std::filesystem::path file, parts;  // JSON lines in; folder for this rank's part of the answers
  std::int64_t batch_size = 8;
  bool shard = false;  // of a file and of a conversation: ranks hold the model between them
  at::Device device = at::kCPU;
  task::GenerateOptions options;
};
GenerateRequest parse_generate_request(const Arguments& arguments, at::Device device);

// Prompt and continuation, or a chat's answer, to standard output.
void generate_one(const GenerateRequest& request);

// Batches of prompts of like length; rank r takes those with number % ranks == r, so that a text does not depend on the number of ranks.
// Where ranks hold the model in shards all take every batch, and the first one writes.
// Writes parts/N.jsonl: {"line": from 0, "completion":, "finish":}. Ranks talk to each other over shards alone.
void generate_file(const GenerateRequest& request, const comm::Place& place, const std::shared_ptr<journal::PageWriter>& page);

// JSON lines on standard input and output, until the input ends:
//   {"ready": true, "context": N}                      once, when the model is loaded
//   in:  {"messages": [{"role":, "content":}, ...]}    the whole conversation
//   out: {"text": "..."} many times, then {"finish": "end", "tokens": N, "reused": N}; or {"error": "..."}
// SIGINT ends the answer that is being written. Where ranks hold the model in shards the first one reads and writes, and SIGINT is its own.
void serve_chat(const GenerateRequest& request, const comm::Place& place, const std::shared_ptr<journal::PageWriter>& page);

}  // namespace lockstep::verbs
