// Walks a file of another program, asks its table about each key, and writes the run file and the report.
#include "config/import.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/file.h"
#include "config/import_table.h"
#include "config/option.h"
#include "config/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Fate = ImportedKey::Fate;
using Action = ImportRow::Action;

constexpr std::size_t longest_value = 60;

const std::vector<const ImportProgram*>& programs() {
  static const std::vector<const ImportProgram*> all = {&axolotl(), &llama_factory(), &hugging_face()};
  return all;
}

bool is_off(const YAML::Node& value) {
  if (value.IsNull()) return true;
  if (value.IsMap() || value.IsSequence()) return value.size() == 0;
  const std::string text = base::lower(value.Scalar());
  return text.empty() || text == "false" || text == "no" || text == "off" || text == "0" || text == "0.0" || text == "none" ||
         text == "null";
}

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

// TrainingArguments have no key of their own: files of the other two hold them as well, beside keys that tell them.
const ImportProgram& told_by_keys(const YAML::Node& file, const std::string& name) {
  const ImportProgram* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const ImportProgram* program : programs()) {
    if (program == &hugging_face() && best != nullptr) break;
    const auto here = std::count_if(program->signs.begin(), program->signs.end(), [&](auto sign) { return bool(file[std::string(sign)]); });
    if (here > most) {
      most = here;
      best = program;
    }
  }
  if (best == nullptr) {
    throw base::usage_error("config",
                            "{} has none of the keys that tell Axolotl, LLaMA-Factory and Hugging Face files apart. Say which it is with "
                            "--from axolotl, llama-factory or huggingface.",
                            name);
  }
  return *best;
}

const ImportProgram& named(std::string_view word) {
  std::string plain = base::lower(word);
  std::erase_if(plain, [](char c) { return c == '-' || c == '_'; });
  for (const ImportProgram* program : programs()) {
    std::string theirs(program->word);
    std::erase(theirs, '-');
    if (plain == theirs || (plain == "hf" && theirs == "huggingface")) return *program;
  }
  throw base::usage_error("config", "--from {} is not one of axolotl, llama-factory and huggingface.", word);
}

YAML::Node parsed(const fs::path& path) {
  read_config_file(path);  // says what is wrong with a file that cannot be read, in our words
  std::string text = base::read_text(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] == '{') std::replace(text.begin(), text.end(), '\t', ' ');
  YAML::Node file = YAML::Load(text);
  if (!file.IsMap() || file.size() == 0) throw base::usage_error("config", "{} holds no settings.", path.string());
  std::map<std::string, int> seen;
  for (const auto& item : file) {
    const int line = item.first.Mark().line + 1;
    if (!item.first.IsScalar()) throw base::usage_error("config", "{}:{}: a key must be a plain name.", path.string(), line);
    const std::string key = item.first.Scalar();
    if (key == "<<") throw base::usage_error("config", "{}:{}: merge keys (<<) are not read. Write the values out.", path.string(), line);
    if (const auto [before, fresh] = seen.emplace(key, line); !fresh) {
      throw base::usage_error("config", "{}: {} is set twice, on lines {} and {}. Keep one.", path.string(), key, before->second, line);
    }
  }
  return file;
}

std::string shortened(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  if (text.size() > longest_value) text = text.substr(0, longest_value - 3) + "...";
  return text;
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

std::string Importer::text(std::string_view key) const {
  const YAML::Node value = file_[std::string(key)];
  return value && value.IsScalar() ? value.Scalar() : "";
}

bool Importer::on(std::string_view key) const { return read_boolean(text(key)).value_or(false); }

bool Importer::has(std::string_view key) const {
  const YAML::Node value = file_[std::string(key)];
  return value && !value.IsNull();
}

void Importer::set(std::string_view ours, const std::string& value) { set(ours, YAML::Node(value)); }

void Importer::set(std::string_view ours, const YAML::Node& value) {
  const Option& option = option_of(ours);
  const auto read = read_value(option, written(value));
  if (const auto* refusal = std::get_if<Refusal>(&read)) {
    return refuse(fmt::format("{} {} here", ours, refusal->rule));
  }
  const std::string yaml = write_value(option, std::get<Value>(read));
  for (auto& [key, before] : assigned_) {
    if (key != ours) continue;
    if (before.value == yaml) return add(Fate::mapped, fmt::format("{} = {}", ours, yaml));
    return refuse(fmt::format("{} is {} already, from {}. Keep one of the two", ours, before.value, before.theirs));
  }
  assigned_.emplace_back(std::string(ours), Assigned{current_.theirs, yaml});
  add(Fate::mapped, fmt::format("{} = {}", ours, yaml));
}

void Importer::ignore(std::string_view why) { add(Fate::ignored, std::string(why)); }

void Importer::refuse(std::string_view why) { add(Fate::refused, std::string(why)); }

void Importer::enter(std::string theirs, const YAML::Node& value) {
  current_.theirs = std::move(theirs);
  current_.value = import_text(value);
  current_.line = value.Mark().line + 1;
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
    case Action::off: return is_off(value) ? ignore("off") : refuse(row.text);
    case Action::convert: return row.converter(*this, value);
  }
}

void Importer::unknown(const std::string& key, const YAML::Node& value) {
  if (const auto what = not_built_yet(key)) return is_off(value) ? ignore("off") : refuse(fmt::format("{} is not built yet", *what));
  if (const auto match = find_key(key); match && key.find('.') == key.npos) {
    if (match->when_true.empty()) return set(match->option->key, value);
    return apply(flagged(key, match->option->key, match->when_true), value);
  }
  if (const auto hint = counterpart_of(key)) return refuse(*hint);
  if (is_off(value)) return ignore("off");
  refuse("not a key this command knows; `lockstep config explain` lists what there is");
}

void Importer::take(const ImportProgram& program, const std::string& key, const YAML::Node& value) {
  if (value.IsNull()) return ignore("empty");
  for (const ImportRow& row : program.rows) {
    const bool family = row.theirs.ends_with('*');
    if (row.theirs == key || (family && key.starts_with(row.theirs.substr(0, row.theirs.size() - 1)))) return apply(row, value);
  }
  unknown(key, value);
}

void Importer::run(const ImportProgram& program) {
  result_.program = program.name;
  for (const auto& item : file_) {
    const std::string key = item.first.Scalar();
    enter(key, item.second);
    current_.line = item.first.Mark().line + 1;
    take(program, key, item.second);
  }
  for (const ImportDefault& one : program.defaults) {
    const bool given = std::any_of(assigned_.begin(), assigned_.end(), [&](const auto& pair) { return pair.first == one.ours; });
    if (given || has(one.theirs) || (!one.only_with.empty() && !has(one.only_with))) continue;
    current_ = {.fate = Fate::filled_in, .line = 0, .theirs = std::string(one.theirs), .value = "", .says = ""};
    assigned_.emplace_back(std::string(one.ours), Assigned{fmt::format("the default of {}", one.theirs), std::string(one.value)});
    add(Fate::filled_in, fmt::format("{} = {}", one.ours, one.value));
  }
}

ImportedFile Importer::result() && {
  std::string& yaml = result_.yaml;
  yaml = fmt::format("# Made by `lockstep config import` from {}, a file of {}.\n", path_.filename().string(), result_.program);
  for (const ImportedKey& key : result_.keys) {
    if (key.fate == Fate::refused) yaml += fmt::format("# refused: {}: {}: {}\n", key.theirs, key.value, key.says);
  }
  std::string_view section;
  for (const Option& option : options()) {
    const auto found = std::find_if(assigned_.begin(), assigned_.end(), [&](const auto& pair) { return pair.first == option.key; });
    if (found == assigned_.end()) continue;
    if (option.section() != section) yaml += fmt::format("\n{}:\n", option.section());
    section = option.section();
    const std::string line = fmt::format("{}{}: {}", section.empty() ? "" : "  ", option.leaf(), found->second.value);
    yaml += fmt::format("{:<43} # {}\n", line, found->second.theirs);
  }
  return std::move(result_);
}

std::size_t ImportedFile::count(Fate fate) const {
  return static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), [&](const ImportedKey& key) { return key.fate == fate; }));
}

std::string ImportedFile::report() const {
  std::string text;
  const auto group = [&](Fate fate, std::string_view title, auto line) {
    if (count(fate) == 0) return;
    text += fmt::format("{}\n", title);
    for (const ImportedKey& key : keys) {
      if (key.fate == fate) text += "  " + line(key) + "\n";
    }
  };
  const auto said = [](const ImportedKey& key) { return key.value.empty() ? key.theirs : fmt::format("{}: {}", key.theirs, key.value); };
  const auto arrow = [&](const ImportedKey& key) { return fmt::format("line {:<4} {}  ->  {}", key.line, said(key), key.says); };
  const auto reason = [&](const ImportedKey& key) { return fmt::format("line {:<4} {}  ({})", key.line, said(key), key.says); };
  group(Fate::mapped, "mapped", arrow);
  group(Fate::filled_in, fmt::format("filled in, because {}'s default is not ours", program),
        [](const ImportedKey& key) { return fmt::format("{}  ->  {}", key.theirs, key.says); });
  group(Fate::ignored, "ignored: harmless", reason);
  group(Fate::refused, "refused: not possible here, the run file goes without", reason);
  text += fmt::format("{} file: {} mapped, {} filled in, {} ignored, {} refused\n", program, count(Fate::mapped), count(Fate::filled_in),
                      count(Fate::ignored), count(Fate::refused));
  return text;
}

ImportedFile import_file(const fs::path& path, std::string_view program) {
  const YAML::Node file = parsed(path);
  Importer importer(file, path);
  importer.run(program.empty() ? told_by_keys(file, path.string()) : named(program));
  return std::move(importer).result();
}

}  // namespace lockstep::config
