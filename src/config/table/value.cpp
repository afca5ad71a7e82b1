// Reading and writing values by an option's type.
#include "config/table/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::config {
namespace {

// Case, '-' and '_' do not tell choices apart.
std::string plain(std::string_view word) {
  std::string result;
  for (const char c : base::lower(word)) {
    if (c != '_' && c != '-') result += c;
  }
  return result;
}

// Also whole numbers written like 1e6.
std::optional<std::int64_t> read_integer(std::string_view text) {
  if (const auto integer = base::parse_integer(text)) return integer;
  const auto number = base::parse_number(text);
  constexpr double exact = 9007199254740992.0;  // beyond 2^53 a double no longer counts
  if (number && std::trunc(*number) == *number && std::abs(*number) <= exact) return static_cast<std::int64_t>(*number);
  return std::nullopt;
}

bool is_zero_word(const Option& option, std::string_view text) {
  const auto& words = option.about.zero_words;
  return std::find(words.begin(), words.end(), base::lower(text)) != words.end();
}

// "0,1", "0-3" and "[0, 1]": lists as command lines and other programs' files write them.
std::optional<std::vector<std::int64_t>> read_integers(std::string text) {
  text = base::trim(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = base::trim(text.substr(1, text.size() - 2));
  std::vector<std::int64_t> numbers;
  if (text.empty()) return numbers;
  for (const std::string& part : base::split(text, ',')) {
    const std::string item = base::trim(part);
    const std::size_t dash = item.find('-', 1);
    if (item.empty()) return std::nullopt;
    const auto first = read_integer(item.substr(0, dash));
    const auto last = dash == item.npos ? first : read_integer(item.substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first > 4096) return std::nullopt;
    for (std::int64_t number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::optional<Value> read_list(const Option& option, const Written& written) {
  std::vector<std::int64_t> numbers;
  if (written.form != Written::Form::list) {
    if (is_zero_word(option, written.text)) return numbers;
    const auto read = read_integers(written.text);
    if (!read) return std::nullopt;
    numbers = *read;
  }
  for (const std::string& item : written.items) {
    const auto number = read_integer(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  for (const std::int64_t number : numbers) {
    if (!option.about.range.holds(static_cast<double>(number))) return std::nullopt;
  }
  return numbers;
}

// "q_proj,v_proj" and "[q_proj, v_proj]", or a list.
Value read_words(const Option& option, const Written& written) {
  std::vector<std::string> words = written.items;
  if (written.form != Written::Form::list && !is_zero_word(option, written.text)) {
    std::string text = base::trim(written.text);
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
    if (text.starts_with("re:")) return std::vector<std::string>{text};  // a regular expression may hold commas
    for (const std::string& part : base::split(text, ',')) {
      if (std::string word = base::trim(part); !word.empty()) words.push_back(std::move(word));
    }
  }
  return words;
}

std::optional<Value> read_choice(const Option& option, std::string_view text) {
  for (const Choice& choice : option.choices) {
    if (plain(choice.name) == plain(text)) return choice.number;
    for (const std::string_view other : choice.others) {
      if (plain(other) == plain(text)) return choice.number;
    }
  }
  return std::nullopt;
}

std::optional<Value> read_scalar(const Option& option, const std::string& text) {
  switch (option.kind) {
    case Kind::boolean:
      if (const auto value = read_boolean(text)) return *value;
      return std::nullopt;
    case Kind::integer: {
      const auto value = is_zero_word(option, text) ? std::optional<std::int64_t>(0) : read_integer(text);
      if (!value || !option.about.range.holds(static_cast<double>(*value))) return std::nullopt;
      return *value;
    }
    case Kind::number: {
      const auto value = base::parse_number(text);
      if (!value || !std::isfinite(*value) || !option.about.range.holds(*value)) return std::nullopt;
      return *value;
    }
    case Kind::choice: return read_choice(option, text);
    case Kind::text: return text;
    case Kind::integers:
    case Kind::texts: break;
  }
  return std::nullopt;
}

std::string number_text(double value) {
  if (std::trunc(value) == value && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

std::string choice_list(std::span<const Choice> choices, std::string_view separator, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? last : separator;
    text += choices[i].name;
  }
  return text;
}

std::string_view choice_name(const Option& option, std::int64_t number) {
  for (const Choice& choice : option.choices) {
    if (choice.number == number) return choice.name;
  }
  throw base::Bug(fmt::format("{} has no choice {}", option.key, number));
}

}  // namespace

std::optional<bool> read_boolean(std::string_view text) {
  const std::string word = base::lower(text);
  for (const std::string_view yes : {"true", "yes", "on", "1"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

bool Range::holds(double value) const {
  return (above_least ? value > least : value >= least) && (below_most ? value < most : value <= most);
}

std::string Range::text() const {
  const bool low = std::isfinite(least), high = std::isfinite(most);
  if (!low && !high) return {};
  if (low && high && !above_least && !below_most) return fmt::format("from {} to {}", number_text(least), number_text(most));
  std::string text;
  if (low) text = fmt::format("{} {}", above_least ? "above" : "at least", number_text(least));
  if (high) text += fmt::format("{}{} {}", low ? " and " : "", below_most ? "below" : "at most", number_text(most));
  return text;
}

std::variant<Value, Refusal> read_value(const Option& option, const Written& written) {
  const bool list = written.form == Written::Form::list;
  std::optional<Value> value;
  if (option.kind == Kind::integers) {
    if (written.form != Written::Form::map && !written.nested) value = read_list(option, written);
  } else if (option.kind == Kind::texts) {
    if (written.form != Written::Form::map && !written.nested) value = read_words(option, written);
  } else if (!list && written.form != Written::Form::map) {
    value = read_scalar(option, written.text);
  }
  if (value) return *value;
  return Refusal{rule_of(option)};
}

std::string rule_of(const Option& option) {
  const std::string range = option.about.range.text();
  const std::string limits = range.empty() ? "" : ", " + range;
  std::string words;
  for (const std::string_view word : option.about.zero_words) words += fmt::format(", or {}", word);
  switch (option.kind) {
    case Kind::boolean: return "must be true or false";
    case Kind::integer: return fmt::format("must be a whole number{}{}", limits, words);
    case Kind::number: return fmt::format("must be a number{}", limits);
    case Kind::choice: return fmt::format("must be {}", choice_list(option.choices, ", ", " or "));
    case Kind::text: return "must be a text";
    case Kind::integers: return fmt::format("must be a list of whole numbers{}", words);
    case Kind::texts: return fmt::format("must be a list of texts{}", words);
  }
  return {};
}

std::string type_name(const Option& option) {
  switch (option.kind) {
    case Kind::boolean: return "true or false";
    case Kind::integer: return "whole number";
    case Kind::number: return "number";
    case Kind::choice: return choice_list(option.choices, ", ", " or ");
    case Kind::text: return "text";
    case Kind::integers: return "list of whole numbers";
    case Kind::texts: return "list of texts";
  }
  return {};
}

std::string quoted_text(std::string_view text) {
  static constexpr std::string_view plain_characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  const bool simple = !text.empty() && text.find_first_not_of(plain_characters) == text.npos &&
                      (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/');
  const std::string word = base::lower(text);
  const bool reserved =
      word == "null" || word == "true" || word == "false" || word == "yes" || word == "no" || word == "on" || word == "off";
  if (simple && !reserved) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\n': quoted += "\\n"; break;
      case '\t': quoted += "\\t"; break;
      case '\r': quoted += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
          quoted += c;
    }
  }
  return quoted + "\"";
}

std::string write_value(const Option& option, const Value& value) {
  switch (option.kind) {
    case Kind::boolean: return std::get<bool>(value) ? "true" : "false";
    case Kind::integer: return fmt::format("{}", std::get<std::int64_t>(value));
    case Kind::number: return number_text(std::get<double>(value));
    case Kind::choice: return std::string(choice_name(option, std::get<std::int64_t>(value)));
    case Kind::text: return quoted_text(std::get<std::string>(value));
    case Kind::integers: return fmt::format("[{}]", fmt::join(std::get<std::vector<std::int64_t>>(value), ", "));
    case Kind::texts: {
      std::vector<std::string> words;
      for (const std::string& word : std::get<std::vector<std::string>>(value)) words.push_back(quoted_text(word));
      return fmt::format("[{}]", fmt::join(words, ", "));
    }
  }
  return {};
}

std::string meaning_when_empty(const Option& option, const Value& value) {
  static const Value empty_values[] = {std::int64_t{0}, 0.0, std::string(), std::vector<std::int64_t>(), std::vector<std::string>()};
  const bool empty = std::find(std::begin(empty_values), std::end(empty_values), value) != std::end(empty_values);
  return empty ? std::string(option.about.zero) : std::string();
}

}  // namespace lockstep::config
