// Files of text to one file of token numbers, on all cores, in the order of the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "front/tokenize/inputs.h"
#include "text/tokenizer.h"

namespace lockstep::tokenize {

struct TokenizeOptions {
  InputOptions inputs;
  std::filesystem::path output;  // written as output.partial, then renamed
  int token_bytes = 4;           // 2 or 4
  std::optional<std::int32_t> before_document, after_document;
  int threads = 0;  // 0: one for each core
  std::size_t chunk_bytes = 1u << 20;
};

struct Totals {
  std::uint64_t bytes_read = 0, bytes = 0;  // of the input so far, and in all
  std::int64_t documents = 0, tokens = 0, bad_lines = 0;
};

// Called now and then by the calling thread.
using Progress = std::function<void(const Totals&)>;

// Throws UserError; then there is no output and no partial file.
Totals tokenize_files(const text::Tokenizer& tokenizer, const TokenizeOptions& options, const Progress& progress);

}  // namespace lockstep::tokenize
