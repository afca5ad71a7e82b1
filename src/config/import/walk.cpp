// Walks a file of another program and asks its table about each key.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/import/table.h"
#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Fate = ImportedKey::Fate;
using Action = ImportRow::Action;

constexpr std::size_t longest_value = 60;

Written written(const YAML::Node& value) {
  Written result;
  if (value.IsSequence()) {
    result.form = Written::Form::list;
    for (const YAML::Node& item : value) {
      if (item.IsScalar())
        result.items.push_back(item.Scalar());
      else
        result.nested = true;
    }
  } else if (value.IsMap()) {
    result.form = Written::Form::map;
  } else {
    result.text = value.IsScalar() ? value.Scalar() : "";
  }
  return result;
}

std::string shortened(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  if (text.size() <= longest_value) return text;
  std::size_t end = longest_value - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not through the middle of a character
  return text.substr(0, end) + "...";
}

}  // namespace

std::string import_text(const YAML::Node& value) {
  if (value.IsNull()) return "";
  if (value.IsScalar()) return shortened(value.Scalar());
  if (value.IsMap()) return value.size() == 0 ? "{}" : "{...}";
  std::vector<std::string> items;
  for (const YAML::Node& item : value) items.push_back(import_text(item));
  return shortened("[" + base::join(items, ", ") + "]");
}

// transformers writes enums as "SchedulerType.COSINE", "IntervalStrategy.STEPS", "OptimizerNames.ADAMW_TORCH".
std::string import_word(const YAML::Node& value) {
  if (!value.IsScalar()) return "";
  const std::string text = base::lower(value.Scalar());
  return text.substr(text.rfind('.') + 1);
}

bool import_is_off(const YAML::Node& value) {
  if (value.IsNull()) return true;
  if (value.IsMap() || value.IsSequence()) return value.size() == 0;
  const std::string text = base::lower(value.Scalar());
  for (const std::string_view off : {"", "false", "no", "off", "0", "0.0", "none", "null"}) {
    if (text == off) return true;
  }
  return false;
}

std::string Importer::text(std::string_view key) const {
  const YAML::Node value = file_[std::string(key)];
  return value && value.IsScalar() ? value.Scalar() : "";
}

bool Importer::on(std::string_view key) const { return read_boolean(text(key)).value_or(false); }

bool Importer::has(std::string_view key) const {
  const YAML::Node value = file_[std::string(key)];
  return value && !value.IsNull();
}

std::string Importer::model() const {
  const std::size_t dot = program_.model_key.find('.');
  if (dot == std::string_view::npos) return program_.model_key.empty() ? "" : text(program_.model_key);
  const YAML::Node part = file_[std::string(program_.model_key.substr(0, dot))];
  const YAML::Node value = part && part.IsMap() ? part[std::string(program_.model_key.substr(dot + 1))] : YAML::Node();
  return value && value.IsScalar() ? value.Scalar() : "";
}

bool Importer::has_model_folder() const {
  std::error_code error;
  return fs::is_directory(model(), error);
}

std::string Importer::assigned(std::string_view ours) const {
  for (const auto& [key, value] : assigned_) {
    if (key == ours) return value.value;
  }
  return "";
}

void Importer::set(std::string_view ours, const std::string& value) { set(ours, YAML::Node(value)); }

void Importer::set(std::string_view ours, const YAML::Node& value) {
  const Option& option = option_of(ours);
  const auto read = read_value(option, written(value));
  if (const auto* refusal = std::get_if<Refusal>(&read)) return refuse(fmt::format("{} {} here", ours, refusal->rule));
  const std::string yaml = write_value(option, std::get<Value>(read));
  const std::string says = fmt::format("{} = {}", ours, shortened(yaml));
  for (auto& [key, before] : assigned_) {
    if (key != ours) continue;
    if (before.value == yaml) return add(Fate::mapped, says);
    return refuse(fmt::format("{} is {} already, from {}. Keep one of the two", ours, before.value, before.theirs));
  }
  assigned_.emplace_back(std::string(ours), Assigned{current_.theirs, yaml});
  const auto* text = std::get_if<std::string>(&std::get<Value>(read));
  result_.given.emplace_back(ours, text != nullptr ? *text : yaml);
  add(Fate::mapped, says);
}

void Importer::note(std::string_view what) { add(Fate::noted, std::string(what)); }

void Importer::ignore(std::string_view why) { add(Fate::ignored, std::string(why)); }

void Importer::refuse(std::string_view why) { add(Fate::refused, std::string(why)); }

void Importer::stop(std::string_view why) {
  throw base::usage_error("config", "{}:{}: {}: {}, a file of {}: {}. Nothing was written.", path_.string(), current_.line, current_.theirs,
                          current_.value, program_.name, why);
}

void Importer::fill_in(std::string_view theirs, std::string_view ours, const std::string& value) {
  if (!assigned(ours).empty() || has(theirs)) return;
  // An adapter that is trained on gives its own shape.
  const bool shape = ours == "lora.rank" || ours == "lora.alpha" || ours == "lora.target_modules";
  if (shape && !assigned("lora.adapters").empty()) return;
  current_ = {.fate = Fate::filled_in, .line = 0, .theirs = std::string(theirs), .value = "", .says = ""};
  assigned_.emplace_back(std::string(ours), Assigned{fmt::format("the default of {}", theirs), value});
  add(Fate::filled_in, fmt::format("{} = {}", ours, value));
}

void Importer::enter(std::string theirs, const YAML::Node& value) {
  current_.theirs = std::move(theirs);
  current_.value = import_text(value);
  if (value.Mark().line >= 0 && !in_other_file_) current_.line = value.Mark().line + 1;
}

void Importer::walk(const std::string& place, const YAML::Node& map, std::span<const ImportRow> rows, std::string_view whose) {
  const YAML::Node* outer = std::exchange(section_, &map);
  for (const auto& item : map) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : "?";
    enter(place.empty() ? key : place + "." + key, item.second);
    if (!in_other_file_) current_.line = item.first.Mark().line + 1;
    take(rows, key, item.second, whose);
  }
  section_ = outer;
}

void Importer::walk_other_file(const std::string& place, const YAML::Node& map, std::span<const ImportRow> rows, std::string_view whose) {
  const bool outer = std::exchange(in_other_file_, true);
  walk(place, map, rows, whose);
  in_other_file_ = outer;
}

void Importer::add(Fate fate, std::string says) {
  ImportedKey key = current_;
  key.fate = fate;
  key.says = std::move(says);
  result_.keys.push_back(std::move(key));
}

void Importer::apply(const ImportRow& row, const YAML::Node& value) {
  switch (row.action) {
    case Action::copy: return set(row.text, value);
    case Action::flag: {
      const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
      if (!yes) return refuse("must be true or false");
      return *yes ? set(row.text, std::string(row.value)) : ignore("off");
    }
    case Action::ignore: return ignore(row.text);
    case Action::refuse: return refuse(row.text);
    case Action::off: return import_is_off(value) ? ignore("off") : refuse(row.text);
    case Action::note: return import_is_off(value) ? ignore("off") : note(row.text);
    case Action::only: {
      const std::string given = value.IsScalar() ? base::lower(value.Scalar()) : import_text(value);
      for (const std::string& harmless : base::split(row.value, '|')) {
        if (given == harmless || import_word(value) == harmless ||
            (harmless == "true" && value.IsScalar() && read_boolean(value.Scalar()).value_or(false)) ||
            (harmless == "off" && import_is_off(value)))
          return ignore("as here");
      }
      return refuse(row.text);
    }
    case Action::stop:
      if (!import_is_off(value)) stop(row.text);
      return ignore("off");
    case Action::convert: return row.converter(*this, value);
  }
}

void Importer::unknown(std::span<const ImportRow> rows, const std::string& key, std::string_view whose) {
  if (const auto what = not_built_yet(key)) return refuse(fmt::format("{} is not built yet", *what));
  std::vector<std::string> names;
  for (const ImportRow& row : rows) {
    if (!row.theirs.ends_with('*')) names.emplace_back(row.theirs);
  }
  const auto best = base::nearest(key, names);
  refuse(fmt::format("not a key of {} that this command knows{}", whose.empty() ? program_.name : whose,
                     best ? fmt::format("; did you mean {}?", *best) : ""));
}

const ImportRow* import_row(std::span<const ImportRow> rows, std::string_view key) {
  for (const ImportRow& row : rows) {
    const bool family = row.theirs.ends_with('*');
    if (row.theirs == key || (family && key.starts_with(row.theirs.substr(0, row.theirs.size() - 1)))) return &row;
  }
  return nullptr;
}

void Importer::take(std::span<const ImportRow> rows, const std::string& key, const YAML::Node& value, std::string_view whose) {
  if (value.IsNull()) return ignore("empty");
  if (const ImportRow* row = import_row(rows, key)) return apply(*row, value);
  unknown(rows, key, whose);
}

void Importer::run() {
  result_.program = program_.name;
  walk("", file_, program_.rows);
  if (program_.fill_in != nullptr) program_.fill_in(*this);
  for (const ImportDefault& one : program_.defaults) fill_in(one.theirs, one.ours, std::string(one.value));
}

}  // namespace lockstep::config
