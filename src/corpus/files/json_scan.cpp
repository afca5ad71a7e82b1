// Counts brackets outside strings. What is wrong inside a value is found by whoever reads it.
#include "corpus/files/json_scan.h"

namespace lockstep::corpus {
namespace {

// One past the closing quote of the string that starts at `at`.
std::optional<std::size_t> skip_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size(); ++at) {
    at = text.find_first_of("\"\\", at);
    if (at == text.npos) return std::nullopt;
    if (text[at] == '"') return at + 1;
    ++at;  // what is escaped
  }
  return std::nullopt;
}

}  // namespace

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n')) ++at;
  return at;
}

std::optional<std::size_t> skip_value(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      const auto end = skip_string(text, at);
      if (!end || depth == 0) return end;
      at = *end;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    }
    if (depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n')) return at;
    ++at;
  }
  return depth == 0 ? std::optional(at) : std::nullopt;
}

std::vector<Member> members_of(std::string_view text, std::size_t at) {
  std::vector<Member> members;
  at = skip_space(text, at + 1);
  while (at < text.size() && text[at] == '"') {
    const auto name_end = skip_string(text, at);
    if (!name_end) break;
    const std::size_t colon = skip_space(text, *name_end);
    if (colon >= text.size() || text[colon] != ':') break;
    const std::size_t value = skip_space(text, colon + 1);
    members.push_back({std::string(text.substr(at + 1, *name_end - at - 2)), value});
    const auto value_end = skip_value(text, value);
    if (!value_end) break;
    at = skip_space(text, *value_end);
    if (at >= text.size() || text[at] != ',') break;
    at = skip_space(text, at + 1);
  }
  return members;
}

}  // namespace lockstep::corpus
