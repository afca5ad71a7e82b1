// Bytes and bare numbers as vocabularies.
#include "rank/data/vocabularies.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "base/utf8.h"

namespace lockstep::data {
namespace {

class Bytes final : public Vocabulary {
 public:
  std::int64_t size() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    // A model may have more tokens than there are bytes; untrained ones read as "?" in any encoding.
    for (const std::int32_t token : tokens) text += token >= 0 && token < 256 ? static_cast<char>(token) : '?';
    return base::valid_utf8(text);
  }
};

class Numbers final : public Vocabulary {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    for (const std::string& part : base::split(text, ' ')) {
      const auto number = base::parse_integer(part);
      if (!number || *number < 0 || *number >= size_) return bytes(text);
      tokens.push_back(static_cast<std::int32_t>(*number));
    }
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override { return fmt::format("{}", fmt::join(tokens, " ")); }

 private:
  std::vector<std::int32_t> bytes(std::string_view text) const {
    std::vector<std::int32_t> tokens;
    for (const char byte : text) {
      const std::int32_t token = static_cast<unsigned char>(byte);
      if (token < size_) tokens.push_back(token);
    }
    return tokens;
  }
  std::int64_t size_;
};

}  // namespace

std::shared_ptr<const Vocabulary> byte_vocabulary() { return std::make_shared<Bytes>(); }
std::shared_ptr<const Vocabulary> number_vocabulary(std::int64_t size) { return std::make_shared<Numbers>(size); }

}  // namespace lockstep::data
