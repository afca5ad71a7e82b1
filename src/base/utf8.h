// What is UTF-8 and what is not.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::base {

// Bytes of the character at the start of `text`, which is not empty; 0 where there is none.
std::size_t utf8_length(std::string_view text);
// The first byte that belongs to no character.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);
// `text` with every byte that is not UTF-8 replaced by U+FFFD: what a model writes must fit into JSON.
std::string valid_utf8(std::string_view text);
// `text` as a message may quote it: control characters and bytes that are not UTF-8 as \x1b, and of a long one its beginning.
std::string quotable(std::string_view text);

}  // namespace lockstep::base
