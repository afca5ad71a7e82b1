// Token files and text files, mapped into memory: ranks of one machine share the pages.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/crc32c.h"
#include "base/text.h"
#include "rank/data/tokens.h"
#include "corpus/files/find.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::size_t scanned_bytes = 4u << 20;  // at each end of a file when it is opened

base::MappedFile map(const std::filesystem::path& path) {
  corpus::check_is_one_file(path);
  try {
    return base::MappedFile(path);
  } catch (const base::UserError& failure) {
    throw base::data_error("data", "{} could not be opened: {}", path.string(), failure.what());
  }
}

// The whole content for small files. For large ones the size and 64 slices of it: resuming must not read a terabyte.
std::uint32_t content_checksum(std::span<const std::byte> bytes) {
  constexpr std::size_t slices = 64, slice_bytes = 1u << 18;
  if (bytes.size() <= 4 * slices * slice_bytes) return base::crc32c(bytes);
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t at = (bytes.size() - slice_bytes) / (slices - 1) * i;
    checksum = base::crc32c(bytes.subspan(at, slice_bytes), checksum);
  }
  return base::crc32c(bytes.last(slice_bytes), checksum);
}

template <typename Token>
class FileTokens final : public Tokens {
 public:
  FileTokens(base::MappedFile file, std::int64_t vocab_size) : file_(std::move(file)), vocab_size_(vocab_size) {
    const std::size_t bytes = file_.bytes().size();
    if (bytes % sizeof(Token) != 0) {
      throw base::data_error("data",
                             "{} has {} bytes, which is no multiple of {}: it does not hold {}-bit tokens, or was cut off. "
                             "Set data.token_type to what it was written with, or copy it again.",
                             file_.path().string(), bytes, sizeof(Token), 8 * sizeof(Token));
    }
    const std::int64_t ends = scanned_bytes / sizeof(Token);
    check(0, std::min(ends, count()));
    check(std::max<std::int64_t>(0, count() - ends), count());
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(file_.bytes().size() / sizeof(Token)); }

  void read(std::int64_t first, std::span<std::int64_t> tokens) const override {
    base::check(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= count(), "tokens are read within their file");
    const Token* source = data() + first;
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = source[i];
      largest = std::max(largest, tokens[i]);
    }
    if (largest >= vocab_size_) check(first, first + static_cast<std::int64_t>(tokens.size()));
  }

  std::string identity() const override {
    return fmt::format("tokens of {} bits, crc32c {:08x}", 8 * sizeof(Token), content_checksum(file_.bytes()));
  }

 private:
  const Token* data() const { return reinterpret_cast<const Token*>(file_.bytes().data()); }

  void check(std::int64_t first, std::int64_t end) const {
    const Token* tokens = data();
    for (std::int64_t i = first; i < end; ++i) {
      if (static_cast<std::int64_t>(tokens[i]) < vocab_size_) continue;
      if constexpr (sizeof(Token) == 1) {
        throw base::data_error("data",
                               "{}: byte {} at position {} is no token of a model with model.vocab_size={}. "
                               "Text is read as bytes: set model.vocab_size to 256 or more.",
                               file_.path().string(), tokens[i], i, vocab_size_);
      }
      throw base::data_error("data",
                             "{}: token {} at position {} is outside the vocabulary (model.vocab_size={}). Raise model.vocab_size "
                             "above {}, or check data.token_type (read as {}-bit numbers).",
                             file_.path().string(), tokens[i], i, vocab_size_, tokens[i], 8 * sizeof(Token));
    }
  }

  base::MappedFile file_;
  std::int64_t vocab_size_;
};

}  // namespace

std::shared_ptr<const Tokens> open_bin(const std::filesystem::path& path, config::TokenType type, std::int64_t vocab_size) {
  if (type == config::TokenType::u16) return std::make_shared<FileTokens<std::uint16_t>>(map(path), vocab_size);
  return std::make_shared<FileTokens<std::uint32_t>>(map(path), vocab_size);
}

std::shared_ptr<const Tokens> open_text(const std::filesystem::path& path, std::int64_t vocab_size) {
  auto file = map(path);
  const auto start = file.bytes().first(std::min<std::size_t>(file.bytes().size(), 4096));
  if (std::find(start.begin(), start.end(), std::byte{0}) != start.end()) {
    throw base::data_error("data", "{} is not text (it has zero bytes). Token files need the ending .bin or data.kind=bin.", path.string());
  }
  return std::make_shared<FileTokens<std::uint8_t>>(std::move(file), vocab_size);
}

}  // namespace lockstep::data
