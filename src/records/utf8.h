// What is UTF-8 and what is not.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::records {

// Bytes of the character at the start of `text`, which is not empty; 0 where there is none.
std::size_t utf8_length(std::string_view text);
// The first byte that belongs to no character.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

}  // namespace lockstep::records
