// The part of Python's `re` that names of modules are chosen with: whether a whole name matches. What behaves otherwise here is refused.
#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

// what() says why, in words that fit behind "PATTERN: ".
class RegexError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Literals, classes, groups, alternatives, repeats, anchors and look-aheads, over ASCII. Groups capture nothing, so back references are
// refused, as are look-behinds, flags, atomic groups and possessive repeats. A match takes time that grows with the name's length, whatever
// the pattern.
class PythonRegex {
 public:
  // Throws RegexError where Python would refuse the pattern, and where its meaning here could differ.
  explicit PythonRegex(std::string_view pattern);

  // re.fullmatch(pattern, text). Throws RegexError where that takes too many steps.
  bool matches_all_of(std::string_view text) const;

 private:
  friend class RegexParser;
  enum class Kind { character, sequence, alternatives, repeat, begin, end, word_border, no_word_border, ahead, not_ahead };
  struct Node {
    Kind kind;
    std::bitset<128> characters = {};
    std::vector<std::size_t> children = {};
    std::size_t least = 0;
    std::optional<std::size_t> most = {};
  };
  using Positions = std::vector<bool>;  // one more than the text has characters

  struct Match;
  std::vector<Node> nodes_;
  std::size_t root_ = 0;
};

}  // namespace lockstep::base
