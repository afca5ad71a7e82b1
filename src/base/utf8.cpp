// Decides by the table of well-formed byte sequences: no overlong forms, no surrogates, nothing past U+10FFFF.
#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::base {

std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const auto second = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0u;
  std::size_t length = 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) length = 2;
  if (lead >= 0xe0 && lead <= 0xef) length = 3;
  if (lead >= 0xf0 && lead <= 0xf4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool not_a_character = (lead == 0xed && second > 0x9f) || (lead == 0xf4 && second > 0x8f);
  return overlong || not_a_character ? 0 : length;
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {  // most text is ASCII: eight bytes at once
      std::uint64_t eight = 0;
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length > 0) {
      valid += text.substr(0, length);
    } else {
      valid += "\xef\xbf\xbd";
    }
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return valid;
}

std::string quotable(std::string_view text) {
  constexpr std::size_t longest = 300;
  std::string safe;
  while (!text.empty()) {
    if (safe.size() >= longest) return safe + "...";
    const std::size_t length = utf8_length(text), taken = std::max<std::size_t>(1, length);
    const auto lead = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F steer terminals, too.
    const bool control = lead < 0x20 || lead == 0x7f || (lead == 0xc2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length > 0 && !control)
      safe += text.substr(0, taken);
    else
      for (const char c : text.substr(0, taken)) safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text.remove_prefix(taken);
  }
  return safe;
}

}  // namespace lockstep::base
