// Tries places before white space, one after the other.
#include "front/tokenize/cut.h"

#include <algorithm>
#include <vector>

namespace lockstep::tokenize {
namespace {

constexpr std::size_t around = 512;  // bytes that are looked at on each side; words and runs of signs are far shorter
constexpr int most_tries = 64;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

bool changes_nothing(const text::Tokenizer& tokenizer, std::string_view text, std::size_t at) {
  std::size_t begin = at - std::min(at, around), end = std::min(text.size(), at + around);
  while (begin < at && continues_character(text[begin])) ++begin;
  while (end > at && end < text.size() && continues_character(text[end])) --end;
  const auto encode = [&](std::size_t from, std::size_t to) {
    return tokenizer.encode(text.substr(from, to - from), text::SpecialTokens::leave_out);
  };
  std::vector<std::int32_t> apart = encode(begin, at);
  const std::vector<std::int32_t> right = encode(at, end);
  apart.insert(apart.end(), right.begin(), right.end());
  return apart == encode(begin, end);
}

}  // namespace

std::optional<std::size_t> find_cut(const text::Tokenizer& tokenizer, std::string_view text, std::size_t middle) {
  int tries = 0;
  for (std::size_t at = std::max<std::size_t>(middle, 1); at < text.size() && tries < most_tries; ++at) {
    if (!is_space(text[at]) || is_space(text[at - 1])) continue;
    ++tries;
    try {
      if (changes_nothing(tokenizer, text, at)) return at;
    } catch (const std::exception&) {  // not UTF-8: whoever encodes the part says where
      return at;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::tokenize
