// One long row of tokens, wherever it comes from: what corpora cut their samples out of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "config/run_config.h"

namespace lockstep::data {

// Reading is thread-safe. Errors are UserError(ExitCode::data).
class Tokens {
 public:
  virtual ~Tokens() = default;
  virtual std::int64_t count() const = 0;
  virtual void read(std::int64_t first, std::span<std::int64_t> tokens) const = 0;
  virtual std::string identity() const = 0;  // equal for equal content
};

// Numbers of 2 or 4 bytes, little-endian, without a header. Throws where a number is outside the vocabulary: at once for the
// first and last megabytes, while reading for the rest.
std::shared_ptr<const Tokens> open_bin(const std::filesystem::path& path, config::TokenType type, std::int64_t vocab_size);
// Every byte is a token.
std::shared_ptr<const Tokens> open_text(const std::filesystem::path& path, std::int64_t vocab_size);
// Even draws from the vocabulary, computed where they are read.
std::shared_ptr<const Tokens> random_tokens(std::int64_t count, std::int64_t vocab_size, std::int64_t seed);

}  // namespace lockstep::data
