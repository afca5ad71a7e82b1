// Compares how a few tokens read with and without the new ones.
#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace lockstep::text {
namespace {

constexpr std::string_view kBroken = "\xef\xbf\xbd";  // U+FFFD: what a tokenizer reads half a character as

// Bytes at the end that begin a character but do not finish it.
std::size_t unfinished(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;  // inside a character
    const std::size_t needs = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return needs > back ? back : 0;
  }
  return 0;
}

// How much of the text's end is the beginning of a stop string.
std::size_t begins_a_stop(std::string_view text, std::span<const std::string> stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) longest = size;
    }
  }
  return longest;
}

}  // namespace

TextStream::TextStream(const Language& language, std::span<const std::int32_t> prompt, std::span<const std::string> stops)
    : language_(&language), stops_(stops) {
  const auto memory = std::min(prompt.size(), language.memory());
  tokens_.assign(prompt.end() - std::ptrdiff_t(memory), prompt.end());
  read_ = tokens_.size();
}

// A token may change how those before it read, so the text of a few is compared with and without the new ones.
std::string TextStream::read_new(bool all) {
  const std::span<const std::int32_t> tokens(tokens_);
  const std::string before = language_->decode(tokens.subspan(before_, read_ - before_)), now = language_->decode(tokens.subspan(before_));
  std::string piece = now.size() > before.size() ? now.substr(before.size()) : "";
  if (!all && (piece.empty() || piece.ends_with(kBroken) || unfinished(piece) > 0)) return "";
  if (language_->memory() < tokens_.size()) before_ = std::max(before_, tokens_.size() - language_->memory());
  read_ = tokens_.size();
  return base::valid_utf8(piece);
}

std::string TextStream::give(std::string piece) {
  text_ += piece;
  return piece;
}

std::string TextStream::push(std::int32_t token) {
  tokens_.push_back(token);
  held_ += read_new(/*all=*/false);
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return give(std::exchange(held_, ""));
  }
  const std::size_t certain = held_.size() - begins_a_stop(held_, stops_);
  std::string piece = held_.substr(0, certain);
  held_.erase(0, certain);
  return give(std::move(piece));
}

std::string TextStream::finish() {
  if (stopped_) return "";
  held_ += read_new(/*all=*/true);
  return give(std::exchange(held_, ""));
}

}  // namespace lockstep::text
