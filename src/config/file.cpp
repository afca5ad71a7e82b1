// YAML and JSON files. JSON is checked by a JSON parser and then read as YAML, which contains it and knows line numbers.
#include "config/file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

std::string line_text(const std::string& text, int line) {
  const auto lines = base::split(text, '\n');
  return line >= 1 && line <= static_cast<int>(lines.size()) ? lines[static_cast<std::size_t>(line - 1)] : std::string();
}

bool looks_like_json(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '{';
}

// torchtitan's files and others': the first line that is no comment is [section], or key = value.
bool looks_like_toml(const std::string& text) {
  for (const std::string& full : base::split(text, '\n')) {
    const std::string line = base::trim(full.substr(0, full.find('#')));
    if (line.empty()) continue;
    const std::size_t end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.\"[] ");
    if (line.front() == '[') return end == line.npos && line.back() == ']' && text.find(" = ") != text.npos;
    return end != line.npos && end > 0 && line.find(" = ") == end - 1 && line.find(": ") == line.npos;
  }
  return false;
}

// Throws with the line of the first mistake.
void check_json(const std::string& text, const std::string& name) {
  try {
    std::ignore = base::parse_json(text);
  } catch (const base::JsonError& error) {
    // A number too large for a double: the option it is for refuses it, with its line.
    if (error.kind() == base::JsonError::Kind::number_too_large) return;
    throw base::usage_error("config", "{}:{}: not valid JSON: {}. Check commas, quotes and brackets.", name, error.line(), error.reason());
  }
}

// The parser's words, in ours.
std::string yaml_complaint(const std::string& said) {
  static const std::pair<std::string_view, std::string_view> words[] = {
      {"illegal map value", "a key stands where none can: the line is indented too far, or has a colon too many"},
      {"end of map not found", "the line is indented unlike the keys above it"},
      {"end of sequence not found", "the line is indented unlike the items above it"},
      {"end of sequence flow not found", "a [ is never closed"},
      {"end of map flow not found", "a { is never closed"},
      {"illegal EOF in scalar", "a quote is never closed"},
      {"bad file", "brackets or indents nest deeper than 500 levels"},
  };
  for (const auto& [theirs, ours] : words) {
    if (said == theirs) return std::string(ours);
  }
  return said;
}

base::UserError yaml_error(const YAML::ParserException& error, const std::string& text, const std::string& name) {
  const int line = error.mark.line + 1;
  const bool tab = line_text(text, line).substr(0, line_text(text, line).find_first_not_of(" \t")).find('\t') != std::string::npos;
  return base::usage_error("config", "{}:{}: not valid YAML at column {}: {}.", name, line, error.mark.column + 1,
                           tab ? "a tab; indent with spaces" : yaml_complaint(error.msg));
}

// Listens for nothing but where a document starts.
class DocumentStart : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { line = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  int line = 0;
};

// The line of the second document, if there is one. Not YAML::LoadAll: in some broken texts the parser finds documents without end.
std::optional<int> second_document(const std::string& yaml) {
  std::istringstream stream(yaml);
  YAML::Parser parser(stream);
  DocumentStart start;
  const bool two = parser.HandleNextDocument(start) && parser.HandleNextDocument(start);
  return two ? std::optional(start.line) : std::nullopt;
}

Written written_of(const YAML::Node& node) {
  Written written;
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null: written.form = Written::Form::null; break;
    case YAML::NodeType::Scalar:
      written.form = node.Tag() == "!" ? Written::Form::quoted : Written::Form::scalar;
      written.text = node.Scalar();
      break;
    case YAML::NodeType::Sequence:
      written.form = Written::Form::list;
      for (const YAML::Node& item : node) {
        if (item.IsScalar())
          written.items.push_back(item.Scalar());
        else
          written.nested = true;
      }
      written.text = written.nested ? "a nested list" : fmt::format("[{}]", fmt::join(written.items, ", "));
      break;
    case YAML::NodeType::Map:
      written.form = Written::Form::map;
      written.text = "{...}";
      break;
  }
  return written;
}

// The parser takes a quoted text to end where the indentation does, closing quote or not. A quote that is open at the end of its line is
// far more often forgotten than meant.
bool quote_left_open(const YAML::Node& node, const std::string& text) {
  if (!node.IsScalar() || node.Tag() != "!") return false;
  const std::string line = line_text(text, line_of(node));
  const auto column = static_cast<std::size_t>(node.Mark().column);
  if (column >= line.size() || (line[column] != '"' && line[column] != '\'')) return false;
  const char quote = line[column];
  for (std::size_t i = column + 1; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\')
      ++i;
    else if (line[i] == quote && quote == '\'' && i + 1 < line.size() && line[i + 1] == quote)
      ++i;
    else if (line[i] == quote)
      return false;
  }
  return true;
}

// Walks the tree. A map under the name of a section opens it; any other map is a value, which its option then refuses.
class Flattener {
 public:
  Flattener(const std::string& text, FileContent& content) : text_(text), sections_(section_names()), content_(content) {}

  void walk(const YAML::Node& map, const std::string& prefix) {
    std::map<std::string, int> seen;
    for (const auto& item : map) {
      if (!item.first.IsScalar()) {
        problem(line_of(item.first), "a key must be a plain name. Remove the brackets.");
        continue;
      }
      const std::string spelled = item.first.Scalar();
      const std::string key = prefix.empty() ? spelled : prefix + "." + spelled;
      const int line = line_of(item.first);
      if (spelled == "<<") {
        problem(line, "merge keys (<<) are not supported. Write the values out.");
        continue;
      }
      if (const auto [first, fresh] = seen.emplace(spelled, line); !fresh) {
        problem(line, fmt::format("{} is set twice, on lines {} and {}. Keep one.", key, first->second, line));
        continue;
      }
      take(key, item.second, line);
    }
  }

 private:
  void take(const std::string& key, const YAML::Node& value, int line) {
    const bool section = std::find(sections_.begin(), sections_.end(), key) != sections_.end();
    if (section && value.IsMap()) {
      walk(value, key);
    } else if (section && !value.IsNull()) {
      problem(line, fmt::format("{} = {} must be a section of keys. Write its keys indented below it, as in models/nano.yaml.", key,
                                written_of(value).text));
    } else if (!section && quote_left_open(value, text_)) {
      problem(line_of(value),
              fmt::format("the text of {} has no closing quote on its line. Close it; write a text of several lines with |.", key));
    } else if (!section) {
      content_.entries.push_back({key, written_of(value), line});
    }
  }

  void problem(int line, std::string text) { content_.problems.push_back({line, std::move(text)}); }

  const std::string& text_;
  std::vector<std::string> sections_;
  FileContent& content_;
};

base::UserError missing_file(const fs::path& path) {
  base::refuse_if_hidden(path);
  std::vector<std::string> neighbors;
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension();
    if (extension == ".yaml" || extension == ".yml" || extension == ".json") neighbors.push_back(entry.path().filename());
  }
  std::sort(neighbors.begin(), neighbors.end());
  std::string fix = " Check the path.";
  if (const auto best = base::nearest(path.filename().string(), neighbors)) {
    fix = fmt::format(" Did you mean {}?", path.has_parent_path() ? (folder / *best).string() : *best);
  }
  return base::usage_error("config", "{} does not exist.{}", path.string(), fix);
}

}  // namespace

FileContent parse_config_text(const std::string& text, const std::string& name) {
  if (text.find('\0') != text.npos) {
    throw base::usage_error("config", "{} is not a config file: it holds binary data. Training data goes to --data.", name);
  }
  std::string yaml = text;
  if (looks_like_json(text)) {
    check_json(text, name);
    std::replace(yaml.begin(), yaml.end(), '\t', ' ');  // JSON may be indented by tabs; inside its strings they are not allowed
  }
  if (looks_like_toml(text)) {
    throw base::usage_error("config", "{} is TOML, which is not read: config files are YAML or JSON. models/ has some to start from.",
                            name);
  }
  FileContent content;
  YAML::Node document;
  try {
    document = YAML::Load(yaml);
    if (const auto second = second_document(yaml)) {
      int line = *second;
      while (line > 1 && !line_text(text, line).starts_with("---")) --line;
      if (line_text(text, line).starts_with("---"))
        throw base::usage_error("config", "{}:{}: a second document starts here (---). A config file is one document.", name, line);
      throw base::usage_error("config", "{}:{}: not valid YAML: what stands here belongs to nothing before it.", name, *second);
    }
  } catch (const YAML::ParserException& error) {
    throw yaml_error(error, text, name);
  }
  if (!document.IsDefined() || document.IsNull()) return content;
  if (!document.IsMap()) {
    throw base::usage_error("config", "{}:{}: must be sections of keys, such as `trainer:` with `learning_rate: 3e-4` below it.", name,
                            line_of(document));
  }
  Flattener(text, content).walk(document, "");
  return content;
}

fs::path find_config_file(const fs::path& asked) {
  std::error_code ignored;
  if (asked.empty() || asked.is_absolute() || fs::exists(asked, ignored)) return asked;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  for (const fs::path& shipped : {prefix / "share" / "lockstep", prefix.parent_path()}) {  // installed; a checkout's build/
    for (const fs::path& path : {shipped / asked, shipped / "models" / (asked.string() + ".yaml")}) {
      if (fs::is_regular_file(path, ignored)) return path;
    }
  }
  return asked;
}

FileContent read_config_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw missing_file(path);
  if (fs::is_directory(path, ignored)) {
    throw base::usage_error("config", "{} is a folder. -f takes a YAML or JSON file, such as {}.", path.string(),
                            (path / "config.yaml").string());
  }
  constexpr std::uintmax_t largest = 16u << 20;
  if (fs::file_size(path, ignored) > largest && !ignored) {
    throw base::usage_error("config", "{} is not a config file: it is larger than {}. Training data goes to --data.", path.string(),
                            base::human_bytes(largest));
  }
  std::string text;
  try {
    text = base::read_text(path);
  } catch (const base::UserError&) {
    throw base::usage_error("config", "cannot read {}. Check who may read it.", path.string());
  }
  return parse_config_text(text, path.string());
}

}  // namespace lockstep::config
