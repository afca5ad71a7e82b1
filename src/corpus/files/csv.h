// Comma-separated values as RFC 4180 has them: quotes around what holds separators, line ends or (doubled) quotes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::corpus {

// One past the last byte of the row that starts at `at`, its line end left out; nothing where a quote is never closed.
std::optional<std::size_t> csv_row_end(std::string_view text, std::size_t at, char separator);
std::vector<std::string> csv_fields(std::string_view row, char separator);

}  // namespace lockstep::corpus
