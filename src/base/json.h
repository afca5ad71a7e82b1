// The one way JSON is read: text of any origin becomes a tree of limited depth, in time that grows with its length alone.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::base {

// Copying, comparing and writing a tree recurse, so an endless row of brackets would end the program.
inline constexpr std::size_t deepest_json = 500;

// Why a text is no JSON. what() reads "line 3, column 7: reason".
class JsonError : public std::runtime_error {
 public:
  enum class Kind { syntax, too_deep, number_too_large, named_twice };
  JsonError(Kind kind, std::string reason, std::string_view text, std::size_t byte);

  Kind kind() const { return kind_; }
  const std::string& reason() const { return reason_; }
  std::size_t byte() const { return byte_; }  // from 0
  std::size_t line() const { return line_; }  // from 1

 private:
  Kind kind_;
  std::string reason_;
  std::size_t byte_, line_;
};

// What two members of one object with the same name mean.
enum class SameNames { last_counts, refused };

// Throws JsonError. Members keep their order.
nlohmann::ordered_json parse_json(std::string_view text, SameNames same_names = SameNames::last_counts);
// For texts that need not be JSON.
std::optional<nlohmann::ordered_json> json_if_any(std::string_view text);

}  // namespace lockstep::base
