// The importer reads files, so a text is one for a moment.
#include "front/serve/form/import.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/file.h"
#include "config/import/import.h"
#include "config/table/option.h"
#include "config/table/value.h"
#include "front/serve/form/passing_file.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;
using config::ImportedKey;

std::string_view name_of(ImportedKey::Fate fate) {
  switch (fate) {
    case ImportedKey::Fate::mapped: return "mapped";
    case ImportedKey::Fate::filled_in: return "filled in";
    case ImportedKey::Fate::noted: return "noted";
    case ImportedKey::Fate::ignored: return "ignored";
    case ImportedKey::Fate::refused: return "refused";
  }
  return "";
}

// The form's values of a run file; what is no setting stays under its own name, and is told when the form is judged.
Json settings_in(const std::string& yaml) {
  const config::FileContent content = config::parse_config_text(yaml, "the file");
  if (!content.problems.empty()) throw base::usage_error("ui", "line {}: {}", content.problems.front().line, content.problems.front().text);
  Json settings = Json::object();
  for (const config::FileEntry& entry : content.entries) {
    using Form = config::Written::Form;
    if (entry.written.form == Form::null || entry.written.form == Form::map) continue;
    std::string text = entry.written.form == Form::list ? base::join(entry.written.items, ",") : entry.written.text;
    const auto match = config::find_key(entry.key);
    if (match && !match->when_true.empty()) {
      if (!config::read_boolean(text).value_or(false)) continue;
      text = match->when_true;
    }
    settings[match ? std::string(match->option->key) : entry.key] = text;
  }
  return settings;
}

// Where it lies for a moment is nobody's business.
config::ImportedFile imported(const std::string& path) {
  try {
    return config::import_file(path, "");
  } catch (const base::UserError& error) {
    std::string text = error.what();
    for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path)) text.replace(at, path.size(), "the file");
    throw base::UserError(error.code(), "ui", text.substr(text.starts_with('[') ? text.find("] ") + 2 : 0));
  }
}

}  // namespace

Json import_text(const std::string& text) {
  const PassingFile file(text);
  if (!config::recognize_foreign(file.path())) {
    Json settings = settings_in(text);
    if (settings.empty()) throw base::usage_error("ui", "this file holds no settings.");
    for (const auto& [key, value] : settings.items()) {
      if (!config::find_key(key)) throw base::usage_error("ui", "{} is no setting, and no program is known whose file this could be.", key);
    }
    return {{"program", "Lockstep"}, {"settings", std::move(settings)}, {"keys", Json::array()}};
  }
  const config::ImportedFile made = imported(file.path());
  Json keys = Json::array();
  for (const ImportedKey& key : made.keys)
    keys.push_back({{"fate", name_of(key.fate)}, {"theirs", key.theirs}, {"value", key.value}, {"says", key.says}, {"line", key.line}});
  return {{"program", made.program}, {"settings", settings_in(made.yaml)}, {"keys", keys}};
}

}  // namespace lockstep::serve
