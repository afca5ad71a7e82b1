// A tokenizer.json as text sees it: text to token numbers and back. Exact because the `tokenizers` library itself does the work.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace lockstep::text {

// Bytes [begin, end) of the text that a token stands for.
struct TokenSpan {
  std::uint32_t begin = 0, end = 0;
};

struct Encoded {
  std::vector<std::int32_t> tokens;
  std::vector<TokenSpan> spans;  // one a token
};

// A token that is found in a text before anything else is done to it: <|im_end|>, say.
struct AddedToken {
  std::int32_t number = 0;
  std::string text;
  bool special = false;  // left out by decode(..., skip_special)
};

enum class SpecialTokens { leave_out, add };  // what the tokenizer's own post-processor adds: <s> at the start, say

// Immutable; any thread may call it.
class Tokenizer {
 public:
  // A folder with tokenizer.json, or the file itself. Errors are UserError(ExitCode::data) that name the file.
  static std::shared_ptr<const Tokenizer> open(const std::filesystem::path& folder_or_file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;

  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special) const;
  Encoded encode_with_spans(std::string_view text, SpecialTokens special) const;
  // The same for many texts, on all cores (RAYON_NUM_THREADS, or `threads` where it is not 0).
  std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const;

  std::int64_t size() const;  // one more than the largest token number, added tokens included
  std::optional<std::int32_t> find(std::string_view token) const;
  std::string token(std::int32_t number) const;  // as the vocabulary spells it; empty where there is none
  bool is_special(std::int32_t number) const;
  std::span<const AddedToken> added_tokens() const;  // by number

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The tokenizer.json of a folder, or the file itself. UserError(ExitCode::data) where there is none.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder_or_file);

// A tokenizer that is parsed when it is first asked for something, once: 128 thousand tokens take most of a second, and a run whose
// data was tokenized before needs it for its samples alone. Any thread may call it; the first waits, and so do those that come meanwhile.
class LazyTokenizer {
 public:
  explicit LazyTokenizer(const std::filesystem::path& folder_or_file) : file_(tokenizer_file(folder_or_file)) {}
  const std::filesystem::path& file() const { return file_; }
  const Tokenizer& get() const;

 private:
  std::filesystem::path file_;
  mutable base::Mutex parsing_;  // held while it is parsed; who comes later asks ready_ alone
  mutable std::shared_ptr<const Tokenizer> parsed_ LOCKSTEP_GUARDED_BY(parsing_);
  mutable std::atomic<const Tokenizer*> ready_ = nullptr;
};

// What stands beside a tokenizer.json: tokenizer_config.json, special_tokens_map.json, generation_config.json, chat_template.jinja.
struct TokenizerFiles {
  std::string bos, eos, pad, unk;                          // spelled as in the vocabulary; empty where there is none
  std::vector<std::pair<std::string, std::string>> named;  // all that are named, as templates see them: {"bos_token", "<s>"}
  std::vector<std::int32_t>
      end_tokens;  // generation stops at any of these: eos_token_id of generation_config.json (else config.json) and eos
  std::vector<std::string> end_texts, special_texts;  // how end_tokens and all special tokens are spelled
  std::string chat_template;                          // source; empty where there is none
  std::string chat_template_from;                     // the file it was found in
  bool adds_bos = false;                              // add_bos_token, where it is said
};
// Every file may be missing; one that is there and broken is UserError(ExitCode::data).
// Without a tokenizer: all but end_tokens, end_texts and special_texts.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder);
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace lockstep::text
