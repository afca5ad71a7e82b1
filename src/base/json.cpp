// Builds the tree itself from the parser's events: the library's own builder knows no depth, and looks at every earlier member for a new
// one.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"

namespace lockstep::base {
namespace {

using Json = nlohmann::ordered_json;

// Where the text nests deeper than it may: the bracket that is one too many.
std::size_t find_too_deep(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest_json) return at;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text.size();
}

std::size_t line_of(std::string_view text, std::size_t byte) {
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n'));
}

std::size_t column_of(std::string_view text, std::size_t byte) {
  const std::size_t line_end = byte == 0 ? text.npos : text.rfind('\n', byte - 1);
  return line_end == text.npos ? byte + 1 : byte - line_end;
}

// The library's "[json.exception...] parse error at line 1, column 9: syntax error ...; last read: ..." without its preamble. What it read
// last may be anything.
std::string reason_of(std::string_view what) {
  const std::size_t column = what.find("column ");
  std::size_t start = column == what.npos ? what.find("] ") : what.find(": ", column);
  return quotable(start == what.npos ? what : what.substr(start + 2));
}

// Receives the library's events (its SAX interface). false ends the parsing.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, SameNames same_names) : text_(text), refuses_same_names_(same_names == SameNames::refused) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text

  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    levels_.back().key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    const bool number = dynamic_cast<const nlohmann::detail::out_of_range*>(&error) != nullptr;
    failure_.emplace(number ? JsonError::Kind::number_too_large : JsonError::Kind::syntax, reason_of(error.what()), text_,
                     position > 0 ? position - 1 : 0);
    return false;
  }

  Json finish() {
    if (failure_) throw *failure_;
    return std::move(root_);
  }

 private:
  struct Level {
    Json* value;
    std::string key = {};                                          // of the member that comes next
    std::unordered_map<std::string_view, std::size_t> names = {};  // filled where there are many
  };
  using Members = std::vector<Json::object_t::value_type>;
  static constexpr std::size_t few = 16;  // names that are compared one by one

  // The place of the next value: the root, the end of a list, a member.
  Json* place() {
    if (levels_.empty()) return &root_;
    Level& level = levels_.back();
    if (level.value->is_array()) return &level.value->get_ref<Json::array_t&>().emplace_back();
    auto& object = level.value->get_ref<Json::object_t&>();
    if (const auto same = find(level, object)) {
      if (refuses_same_names_) {
        failure_.emplace(JsonError::Kind::named_twice, level.key, text_, 0);
        return nullptr;
      }
      return &object.begin()[static_cast<std::ptrdiff_t>(*same)].second;
    }
    return &static_cast<Members&>(object).emplace_back(std::move(level.key), Json()).second;
  }

  // Which member has the name already. Names are looked up in a table once there are many; the table's texts are the members' own, so it is
  // made anew when the members move.
  static std::optional<std::size_t> find(Level& level, Json::object_t& object) {
    if (object.size() < few) {
      for (std::size_t i = 0; i < object.size(); ++i)
        if (object.begin()[static_cast<std::ptrdiff_t>(i)].first == level.key) return i;
      return std::nullopt;
    }
    if (object.size() == object.capacity()) {
      object.reserve(2 * object.size());
      level.names.clear();
    }
    for (std::size_t i = level.names.size(); i < object.size(); ++i)
      level.names.emplace(object.begin()[static_cast<std::ptrdiff_t>(i)].first, i);
    const auto found = level.names.find(level.key);
    return found == level.names.end() ? std::nullopt : std::optional(found->second);
  }

  template <typename Value>
  bool put(Value&& value) {
    Json* where = place();
    if (where == nullptr) return false;
    *where = std::forward<Value>(value);
    return true;
  }

  bool open(Json container) {
    if (levels_.size() == deepest_json) {
      failure_.emplace(JsonError::Kind::too_deep, fmt::format("brackets nest deeper than {} levels", deepest_json), text_,
                       find_too_deep(text_));
      return false;
    }
    Json* where = place();
    if (where == nullptr) return false;
    *where = std::move(container);
    levels_.push_back({where});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  std::string_view text_;
  bool refuses_same_names_;
  Json root_;
  std::vector<Level> levels_;
  std::optional<JsonError> failure_;
};

}  // namespace

JsonError::JsonError(Kind kind, std::string reason, std::string_view text, std::size_t byte)
    : std::runtime_error(fmt::format("line {}, column {}: {}", line_of(text, std::min(byte, text.size())),
                                     column_of(text, std::min(byte, text.size())), reason)),
      kind_(kind),
      reason_(std::move(reason)),
      byte_(std::min(byte, text.size())),
      line_(line_of(text, byte_)) {}

nlohmann::ordered_json parse_json(std::string_view text, SameNames same_names) {
  TreeBuilder builder(text, same_names);
  Json::sax_parse(text, &builder);
  return builder.finish();
}

std::optional<nlohmann::ordered_json> json_if_any(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::base
