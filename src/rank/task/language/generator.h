// Goes on from prompts, many at once, until each text is over.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rank/model/decode_cache.h"
#include "rank/model/model.h"
#include "rank/task/task.h"
#include "text/text_stream.h"
#include "rank/task/language/sampling.h"

namespace lockstep::task {

struct GenerateOptions {
  Sampling sampling = {};
  std::int64_t max_tokens = 80;
  std::int64_t context = 256;           // tokens of prompt and answer together that the model can read
  std::vector<std::string> stops = {};  // a text ends before any of these
  Follow follow = {};                   // where ranks write together
};

struct Prompt {
  std::vector<std::int32_t> tokens;
  std::uint64_t key = 0;  // tells its draws from those of other prompts: its place in a file, say
};

enum class Finish { end, stop, length, context, interrupted };
std::string_view name_of(Finish finish);

struct Completion {
  std::string text;                  // without the prompt
  std::vector<std::int32_t> tokens;  // with the end token, where that was met
  Finish finish = Finish::length;
  std::int64_t reused = 0;  // tokens of the prompt that were known from the call before
};

// Hears text while it comes: which prompt's, and the new piece. Returns false to end all texts here.
using OnText = std::function<bool(std::size_t prompt, const std::string& piece)>;

// One thread; the model is used between calls by others at will.
class Generator {
 public:
  Generator(model::Decoder& model, const text::Language& language, at::Device device, GenerateOptions options);

  // A completion a prompt. UserError(ExitCode::data) where a prompt leaves no room for an answer.
  std::vector<Completion> run(std::span<const Prompt> prompts, const OnText& on_text = {});
  // The same for one prompt, remembering what was seen: where the next prompt begins alike, that part is not computed again.
  Completion go_on(const Prompt& prompt, const OnText& on_text = {});

 private:
  struct Row;
  struct Rows;
  void mark_prompts(Rows& rows, std::int64_t vocab) const;
  void add(Row& row, std::int32_t token, const std::function<bool(const std::string&)>& hand_out) const;
  void write(Rows& rows, model::DecodeCache& cache, at::Tensor logits, const OnText& on_text);
  at::Tensor choose(const Rows& rows, at::Tensor logits) const;
  void check_fits(const Prompt& prompt) const;
  bool is_end(std::int32_t token) const;

  model::Decoder& model_;
  const text::Language& language_;
  at::Device device_;
  GenerateOptions options_;
  std::vector<std::int32_t> ends_;
  std::optional<model::DecodeCache> remembered_;
  std::vector<std::int32_t> remembered_tokens_;
};

}  // namespace lockstep::task
