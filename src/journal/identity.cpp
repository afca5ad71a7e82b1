// Facts are matched by name, in the order of the first.
#include "journal/identity.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::journal {
namespace {

const Fact* find(const Identity& identity, std::string_view name) {
  const auto found = std::find_if(identity.begin(), identity.end(), [&](const Fact& fact) { return fact.name == name; });
  return found == identity.end() ? nullptr : &*found;
}

std::string shown(const Fact* fact) { return fact == nullptr ? "not there" : fact->value.empty() ? "empty" : fact->value; }

// '\\', '\n' and '\t' are what separates; they are written so that they do not.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return out;
}

}  // namespace

std::vector<std::string> differences(const Identity& a, const Identity& b, std::string_view name_a, std::string_view name_b) {
  std::vector<std::string> lines;
  const auto tell = [&](const std::string& name, const Fact* left, const Fact* right) {
    lines.push_back(fmt::format("{} is {} on {} and {} on {}", name, shown(left), name_a, shown(right), name_b));
  };
  for (const Fact& fact : a) {
    const Fact* other = find(b, fact.name);
    if (other == nullptr || other->value != fact.value) tell(fact.name, &fact, other);
  }
  for (const Fact& fact : b) {
    if (find(a, fact.name) == nullptr) tell(fact.name, nullptr, &fact);
  }
  return lines;
}

std::string to_text(const Identity& identity) {
  std::string text;
  for (const Fact& fact : identity) text += escaped(fact.name) + "\t" + escaped(fact.value) + "\n";
  return text;
}

Identity identity_from_text(std::string_view text) {
  Identity identity;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t tab = std::min(line.find('\t'), line.size());
    identity.push_back({unescaped(line.substr(0, tab)), unescaped(line.substr(std::min(tab + 1, line.size())))});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return identity;
}

}  // namespace lockstep::journal
