// Rows and fields of CSV. A quote inside a field that does not begin with one is an ordinary letter: 5" pipes exist.
#include "corpus/files/csv.h"

namespace lockstep::corpus {

std::optional<std::size_t> csv_row_end(std::string_view text, std::size_t at, char separator) {
  bool quoted = false, field_start = true;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c != '"') continue;
      if (at + 1 < text.size() && text[at + 1] == '"')
        ++at;
      else
        quoted = false;
    } else if (c == '"' && field_start) {
      quoted = true;
    } else if (c == '\n') {
      return at;
    }
    field_start = !quoted && c == separator;
  }
  return quoted ? std::nullopt : std::optional(at);
}

std::vector<std::string> csv_fields(std::string_view row, char separator) {
  if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
  std::vector<std::string> fields(1);
  bool quoted = false, field_start = true;
  for (std::size_t at = 0; at < row.size(); ++at) {
    const char c = row[at];
    if (quoted && c == '"' && at + 1 < row.size() && row[at + 1] == '"') {
      fields.back() += '"';
      ++at;
    } else if (c == '"' && (quoted || field_start)) {
      quoted = !quoted;
    } else if (c == separator && !quoted) {
      fields.emplace_back();
      field_start = true;
      continue;
    } else {
      fields.back() += c;
    }
    field_start = false;
  }
  return fields;
}

}  // namespace lockstep::corpus
