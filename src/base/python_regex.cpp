// A pattern is a tree; matching asks each node which positions it leads to from a set of positions. Nothing is tried twice, so nothing
// explodes.
#include "base/python_regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep::base {
namespace {

constexpr std::size_t deepest_group = 100, most_repeats = 1000, longest_pattern = 16 << 10;
constexpr std::size_t most_steps = 1'000'000;

using Characters = std::bitset<128>;

Characters range(unsigned char first, unsigned char last) {
  Characters set;
  for (std::size_t c = first; c <= last; ++c) set.set(c);
  return set;
}
Characters one(unsigned char c) { return range(c, c); }
Characters digits() { return range('0', '9'); }
Characters word() { return digits() | range('a', 'z') | range('A', 'Z') | one('_'); }
// What str.isspace() says of ASCII.
Characters space() { return range('\t', '\r') | range(0x1c, ' '); }

}  // namespace

// Reads a pattern as sre_parse does.
class RegexParser {
 public:
  RegexParser(std::string_view pattern, PythonRegex& regex) : pattern_(pattern), regex_(regex) {}

  void parse() {
    if (pattern_.size() > longest_pattern) throw RegexError(fmt::format("it is longer than {} characters", longest_pattern));
    for (const char c : pattern_) {
      if (static_cast<unsigned char>(c) >= 128) throw RegexError("it holds a character that is not ASCII");
    }
    regex_.root_ = alternatives(0);
    if (at_ < pattern_.size()) throw error("unbalanced parenthesis");
  }

 private:
  using Kind = PythonRegex::Kind;
  using Node = PythonRegex::Node;

  bool ended() const { return at_ >= pattern_.size(); }
  char next() const { return pattern_[at_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  RegexError error(std::string_view why) const { return RegexError(fmt::format("{} at position {}", why, at_)); }

  std::size_t add(Node node) {
    regex_.nodes_.push_back(std::move(node));
    return regex_.nodes_.size() - 1;
  }
  std::size_t add_characters(const Characters& set) { return add({.kind = Kind::character, .characters = set}); }

  std::size_t alternatives(std::size_t depth) {
    if (depth > deepest_group) throw error(fmt::format("groups nest deeper than {} levels", deepest_group));
    std::vector<std::size_t> branches = {sequence(depth)};
    while (take("|")) branches.push_back(sequence(depth));
    return branches.size() == 1 ? branches.front() : add({.kind = Kind::alternatives, .children = std::move(branches)});
  }

  std::size_t sequence(std::size_t depth) {
    std::vector<std::size_t> items;
    while (!ended() && next() != '|' && next() != ')') {
      const std::size_t item = atom(depth);
      items.push_back(repeated(item));
    }
    return add({.kind = Kind::sequence, .children = std::move(items)});
  }

  std::size_t atom(std::size_t depth) {
    const char c = next();
    if (c == '*' || c == '+' || c == '?' || (c == '{' && is_count())) throw error("nothing to repeat");
    ++at_;
    switch (c) {
      case '.': return add_characters(~one('\n'));
      case '^': return add({.kind = Kind::begin});
      case '$': return add({.kind = Kind::end});
      case '[': return add_characters(character_class());
      case '(': return group(depth);
      case '\\': return escape();
      default: return add_characters(one(static_cast<unsigned char>(c)));
    }
  }

  std::size_t group(std::size_t depth) {
    Kind kind = Kind::sequence;
    if (take("?")) {
      if (take("=")) {
        kind = Kind::ahead;
      } else if (take("!")) {
        kind = Kind::not_ahead;
      } else if (take("P<")) {
        group_name();
      } else if (!take(":")) {
        throw error("a kind of group that is not understood here: plain groups, (?:...), (?P<name>...), (?=...) and (?!...) are");
      }
    }
    const std::size_t inside = alternatives(depth + 1);
    if (!take(")")) throw error("missing ), unterminated subpattern");
    return add({.kind = kind, .children = {inside}});
  }

  void group_name() {
    const std::size_t end = pattern_.find('>', at_);
    const std::string name(pattern_.substr(at_, end == pattern_.npos ? 0 : end - at_));
    const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), in_word) || std::isdigit(static_cast<unsigned char>(name[0])) != 0)
      throw error("a group's name is missing or no name");
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) throw error("two groups have the same name");
    names_.push_back(name);
    at_ = end + 1;
  }

  // {3}, {3,}, {,5}, {3,5}; anything else in braces is text.
  bool is_count() const {
    std::size_t at = at_ + 1;
    if (at < pattern_.size() && pattern_[at] == '}') return false;
    const auto skip_digits = [&] {
      while (at < pattern_.size() && std::isdigit(static_cast<unsigned char>(pattern_[at])) != 0) ++at;
    };
    skip_digits();
    if (at < pattern_.size() && pattern_[at] == ',') {
      ++at;
      skip_digits();
    }
    return at < pattern_.size() && pattern_[at] == '}';
  }

  std::optional<std::size_t> count() {
    std::size_t value = 0;
    const std::size_t start = at_;
    for (; !ended() && std::isdigit(static_cast<unsigned char>(next())) != 0; ++at_) {
      value = 10 * value + static_cast<std::size_t>(next() - '0');
      if (value > most_repeats) throw error(fmt::format("a repeat of more than {} times", most_repeats));
    }
    return at_ == start ? std::nullopt : std::optional(value);
  }

  std::size_t repeated(std::size_t item) {
    if (ended()) return item;
    Node repeat{.kind = Kind::repeat, .children = {item}};
    if (take("*")) {
    } else if (take("+")) {
      repeat.least = 1;
    } else if (take("?")) {
      repeat.most = 1;
    } else if (next() == '{' && is_count()) {
      ++at_;
      const auto least = count();
      repeat.least = least.value_or(0);
      repeat.most = take(",") ? count() : least;
      ++at_;  // }
      if (repeat.most && *repeat.most < repeat.least) throw error("min repeat greater than max repeat");
    } else {
      return item;
    }
    const Kind kind = regex_.nodes_[item].kind;
    if (kind == Kind::begin || kind == Kind::end || kind == Kind::word_border || kind == Kind::no_word_border)
      throw error("nothing to repeat");
    if (take("+")) throw error("possessive repeats are not understood here");
    take("?");  // lazy: the same names match
    if (!ended() && (next() == '*' || next() == '+' || next() == '?' || (next() == '{' && is_count()))) throw error("multiple repeat");
    return add(std::move(repeat));
  }

  std::size_t escape() {
    if (ended()) throw error("bad escape (end of pattern)");
    const char c = next();
    switch (c) {
      case 'A': ++at_; return add({.kind = Kind::begin});
      case 'Z': ++at_; return add({.kind = Kind::end});
      case 'b': ++at_; return add({.kind = Kind::word_border});
      case 'B': ++at_; return add({.kind = Kind::no_word_border});
      default: return add_characters(escaped_characters());
    }
  }

  // Behind the backslash.
  Characters escaped_characters() {
    const char c = next();
    ++at_;
    switch (c) {
      case 'd': return digits();
      case 'D': return ~digits();
      case 'w': return word();
      case 'W': return ~word();
      case 's': return space();
      case 'S': return ~space();
      case 'a': return one('\a');
      case 'f': return one('\f');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 't': return one('\t');
      case 'v': return one('\v');
      default: break;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0)
      throw error("a back reference or a character by its number, which is not understood here");
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      throw error(fmt::format("bad escape \\{}, or one that is not understood here", c));
    return one(static_cast<unsigned char>(c));
  }

  // Behind the opening bracket.
  Characters character_class() {
    Characters set;
    const bool negated = take("^");
    const std::size_t start = at_;
    while (true) {
      if (ended()) throw error("unterminated character set");
      if (next() == ']' && at_ != start) break;
      const auto [first, is_one] = class_item();
      if (at_ + 1 < pattern_.size() && next() == '-' && pattern_[at_ + 1] != ']') {
        ++at_;
        const auto [last, last_is_one] = class_item();
        const auto low = first._Find_first(), high = last._Find_first();
        if (!is_one || !last_is_one || high < low) throw error("bad character range");
        set |= range(static_cast<unsigned char>(low), static_cast<unsigned char>(high));
      } else {
        set |= first;
      }
    }
    ++at_;
    return negated ? ~set : set;
  }

  struct ClassItem {
    Characters characters;
    bool is_one;
  };
  ClassItem class_item() {
    const char c = next();
    ++at_;
    if (c != '\\') return {one(static_cast<unsigned char>(c)), true};
    if (ended()) throw error("unterminated character set");
    if (next() == 'b') {
      ++at_;
      return {one('\b'), true};
    }
    const bool many = std::string_view("dDwWsS").find(next()) != std::string_view::npos;
    return {escaped_characters(), !many};
  }

  std::string_view pattern_;
  PythonRegex& regex_;
  std::size_t at_ = 0;
  std::vector<std::string> names_;
};

PythonRegex::PythonRegex(std::string_view pattern) { RegexParser(pattern, *this).parse(); }

struct PythonRegex::Match {
  const PythonRegex& regex;
  std::string_view text;
  std::size_t steps = 0;

  bool in_word(std::size_t at) const {
    return at < text.size() && static_cast<unsigned char>(text[at]) < 128 && word().test(static_cast<unsigned char>(text[at]));
  }

  // Whether an anchor holds there. Names have no line ends, so `$` is the end alone.
  bool holds(Kind kind, std::size_t at) const {
    const bool border = in_word(at) != (at > 0 && in_word(at - 1));
    switch (kind) {
      case Kind::begin: return at == 0;
      case Kind::end: return at == text.size();
      case Kind::word_border: return border;
      default: return !border;
    }
  }

  Positions from(std::size_t index, const Positions& starts) {
    if ((steps += starts.size()) > most_steps) throw RegexError("it takes too many steps");
    const Node& node = regex.nodes_[index];
    Positions ends(starts.size());
    switch (node.kind) {
      case Kind::character:
        for (std::size_t at = 0; at < text.size(); ++at) {
          const auto c = static_cast<unsigned char>(text[at]);
          if (starts[at] && c < 128 && node.characters.test(c)) ends[at + 1] = true;
        }
        return ends;
      case Kind::sequence:
        ends = starts;
        for (const std::size_t child : node.children) ends = from(child, ends);
        return ends;
      case Kind::alternatives:
        for (const std::size_t child : node.children) unite(ends, from(child, starts));
        return ends;
      case Kind::repeat: return repeated(node, starts);
      case Kind::ahead:
      case Kind::not_ahead:
        for (std::size_t at = 0; at < starts.size(); ++at) {
          if (!starts[at]) continue;
          Positions only(starts.size());
          only[at] = true;
          const Positions found = from(node.children[0], only);
          const bool any = std::find(found.begin(), found.end(), true) != found.end();
          ends[at] = any == (node.kind == Kind::ahead);
        }
        return ends;
      default:
        for (std::size_t at = 0; at < starts.size(); ++at) ends[at] = starts[at] && holds(node.kind, at);
        return ends;
    }
  }

  Positions repeated(const Node& node, const Positions& starts) {
    Positions now = starts;
    for (std::size_t i = 0; i < node.least; ++i) now = from(node.children[0], now);
    Positions all = now;
    for (std::size_t i = node.least; !node.most || i < *node.most; ++i) {
      now = from(node.children[0], now);
      if (!unite(all, now)) break;
    }
    return all;
  }

  // Whether there was anything new.
  static bool unite(Positions& all, const Positions& more) {
    bool grew = false;
    for (std::size_t at = 0; at < all.size(); ++at) {
      if (!more[at] || all[at]) continue;
      all[at] = grew = true;
    }
    return grew;
  }
};

bool PythonRegex::matches_all_of(std::string_view text) const {
  Positions starts(text.size() + 1);
  starts[0] = true;
  return Match{*this, text}.from(root_, starts).back();
}

}  // namespace lockstep::base
