// One option of the table: its names, type, range, sentence, and the field it sets. Used inside this room and by its tests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/run_config.h"

namespace lockstep::config {

enum class Kind { boolean, integer, number, text, integers, texts, choice };

// A choice is held as the number of its enumerator.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

struct Choice {
  std::int64_t number;
  std::string_view name;
  std::vector<std::string_view> others;  // spellings of the same thing; case, '-' and '_' do not matter
};

std::span<const Choice> choices_of(DType);
std::span<const Choice> choices_of(Family);
std::span<const Choice> choices_of(Backend);
std::span<const Choice> choices_of(DeviceKind);
std::span<const Choice> choices_of(LrScaling);
std::span<const Choice> choices_of(Recompute);
std::span<const Choice> choices_of(LrSchedule);
std::span<const Choice> choices_of(DataKind);
std::span<const Choice> choices_of(TokenType);
std::span<const Choice> choices_of(ReduceDType);
std::span<const Choice> choices_of(ShardKind);
std::span<const Choice> choices_of(RecordFormat);
std::span<const Choice> choices_of(TrainOn);
std::span<const Choice> choices_of(PromptStyle);
std::span<const Choice> choices_of(TooLong);
std::span<const Choice> choices_of(BadRecord);
std::span<const Choice> choices_of(Optimizer);
std::span<const Choice> choices_of(StateDType);
std::span<const Choice> choices_of(RopeScaling);

struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // least itself is not allowed
  bool below_most = false;

  bool holds(double value) const;
  std::string text() const;  // "at least 1", "above 0", "from 0 to 1"; empty when everything goes
};

inline constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr Range at_least(double least) { return {.least = least}; }
constexpr Range above(double least, double most = unlimited) { return {.least = least, .most = most, .above_least = true}; }
constexpr Range between(double least, double most) { return {.least = least, .most = most}; }
constexpr Range from_below(double least, double most) { return {.least = least, .most = most, .below_most = true}; }

// A name from elsewhere that sets this option. With `when_true`, it is a boolean: true sets that value, false changes nothing.
struct Alias {
  std::string_view name;
  std::string_view when_true = {};
};

// What an entry of the table says. Only `key` and `says` are always given; the type and the default come from the field.
struct About {
  std::string_view key;                           // "trainer.learning_rate"
  std::string_view says;                          // one sentence, for help and docs
  std::string_view unit = {};                     // "samples", "steps", "seconds"
  Range range = {};                               // integers and numbers
  std::string_view zero = {};                     // what 0, an empty text or an empty list means: "one a device"
  std::vector<std::string_view> zero_words = {};  // words that mean the same: "auto", "all"
  std::vector<Alias> aliases = {};                // other keys
  std::vector<std::string_view> flags = {};       // "--lr", "-d"; the first long one is shown
  std::string_view example = {};                  // a value, for messages and docs; the default when empty
};

struct Option {
  std::string_view key;
  Kind kind;
  About about;
  std::span<const Choice> choices;
  Value (*get)(const RunConfig&);
  void (*set)(RunConfig&, const Value&);

  std::string_view section() const;  // "trainer", "trainer.distributed", "" for the top level
  std::string_view leaf() const;     // "learning_rate"
  bool is_list() const { return kind == Kind::integers || kind == Kind::texts; }
};

template <typename T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, bool>)
    return Kind::boolean;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return Kind::integer;
  else if constexpr (std::is_same_v<T, double>)
    return Kind::number;
  else if constexpr (std::is_same_v<T, std::string>)
    return Kind::text;
  else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
    return Kind::integers;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return Kind::texts;
  else
    return Kind::choice;
}

// config.trainer.seed for path = &RunConfig::trainer, &TrainerConfig::seed.
template <auto... path>
auto& field(auto& config) {
  // clang-format off
  return (config .* ... .* path);
  // clang-format on
}

// Binds the field reached from RunConfig by `path`, a chain of pointers to members, to what the table says about it.
template <auto... path>
Option option(About about) {
  using T = std::remove_cvref_t<decltype(field<path...>(std::declval<RunConfig&>()))>;
  constexpr Kind kind = kind_of<T>();
  Option result{.key = about.key, .kind = kind, .about = std::move(about), .choices = {}, .get = nullptr, .set = nullptr};
  if constexpr (kind == Kind::choice) {
    result.choices = choices_of(T{});
    result.get = [](const RunConfig& config) -> Value { return static_cast<std::int64_t>(field<path...>(config)); };
    result.set = [](RunConfig& config, const Value& value) { field<path...>(config) = static_cast<T>(std::get<std::int64_t>(value)); };
  } else {
    result.get = [](const RunConfig& config) -> Value { return field<path...>(config); };
    result.set = [](RunConfig& config, const Value& value) { field<path...>(config) = std::get<T>(value); };
  }
  return result;
}

// The table, in the order of files, help and docs.
const std::vector<Option>& options();
std::vector<Option> top_level_options();
std::vector<Option> model_options();
std::vector<Option> trainer_options();
std::vector<Option> lora_options();
std::vector<Option> data_options();
std::vector<Option> parallel_options();
std::vector<Option> checkpoint_options();
std::vector<Option> monitor_options();
std::vector<Option> launch_options();
std::vector<std::string> section_names();  // "model", "trainer", "trainer.distributed", ...

// What a spelling means: the option and, for aliases such as `bf16: true`, the value it stands for when true.
struct Match {
  const Option* option = nullptr;
  std::string_view when_true = {};
};
const Option& option_of(std::string_view key);             // our own keys only; Bug if there is none
std::optional<Match> find_key(std::string_view spelled);   // "trainer.lr", "per_device_train_batch_size"
std::optional<Match> find_flag(std::string_view flag);     // "--lr", "--learning_rate", "-d"; not "--no-..."
std::string suggestion_for_key(std::string_view spelled);  // " Did you mean trainer.seed?" or ""
std::string suggestion_for_flag(std::string_view flag);
std::string suggestion_for_choice(const Option& option, std::string_view text);  // what a value that is no choice most likely meant, or ""

// Keys of other programs that name what is not built yet: the thing's name ("mixture of experts"), or nothing.
std::optional<std::string> not_built_yet(std::string_view spelled);
// Keys of other programs that something else here stands for: a sentence that names it.
std::optional<std::string> counterpart_of(std::string_view spelled);
// The same for values that are no choice of an option: what to set instead.
std::optional<std::string> counterpart_of_value(std::string_view key, std::string_view text);

std::string environment_name(const Option& option);  // LOCKSTEP_TRAINER_LEARNING_RATE

}  // namespace lockstep::config
