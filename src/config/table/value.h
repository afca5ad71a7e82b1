// Values as text: reading what a person wrote into an option's type, and writing it so that it reads back the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/table/option.h"

namespace lockstep::config {

// What a file or a command line holds for one key, before its type is known.
struct Written {
  enum class Form { scalar, quoted, list, map, null };
  Form form = Form::scalar;
  std::string text = {};                // scalar, quoted; a list or a map as it reads in a message
  std::vector<std::string> items = {};  // list of scalars
  bool nested = false;                  // a list that holds more than scalars
};

// Why a value was refused: "must be a whole number, at least 1".
struct Refusal {
  std::string rule;
};

std::variant<Value, Refusal> read_value(const Option& option, const Written& written);

std::optional<bool> read_boolean(std::string_view text);  // true, yes, on, 1 and their opposites, in any case

std::string write_value(const Option& option, const Value& value);         // as YAML
std::string meaning_when_empty(const Option& option, const Value& value);  // what 0 or nothing means here; "" for other values
std::string rule_of(const Option& option);                                 // "must be a whole number, at least 1"
std::string type_name(const Option& option);                               // "integer", "f32 | f16 | bf16"
std::string quoted_text(std::string_view text);                            // a YAML scalar that reads back as `text`

}  // namespace lockstep::config
