// Chat templates in files of other programs: their text, a file, or a name of the program's own.
#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/import/table.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

// <|im_start|>role, the text, <|im_end|>: what every program calls chatml.
constexpr std::string_view chatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Names that programs give to their copies of a family's template.
struct TemplateFamily {
  std::string_view name;        // a template's name that begins so
  std::string_view model_type;  // of config.json
  std::string_view in_name;     // of the models' names on the Hub, in lower case, without - _ .
  bool large_vocabulary = false;
};
constexpr std::array families = std::to_array<TemplateFamily>({
    {"llama3", "llama", "llama3", true},
    {"llama_3", "llama", "llama3", true},
    {"llama2", "llama", "llama2"},
    {"mistral", "mistral", "mistral"},
    {"ministral", "mistral", "ministral"},
    {"qwen3", "qwen3", "qwen3"},
    {"qwen_25", "qwen2", "qwen25"},
    {"qwen2", "qwen2", "qwen2"},
    {"qwen", "qwen2", "qwen2"},
});

const TemplateFamily* family_of(const std::string& name) {
  for (const TemplateFamily& family : families) {
    if (base::lower(name).starts_with(family.name)) return &family;
  }
  return nullptr;
}

nlohmann::json json_of(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? base::json_if_any(base::read_text(path)).value_or(nullptr) : nullptr;
}

bool has_template(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "chat_template.jinja", error) || fs::exists(folder / "chat_template.json", error)) return true;
  const nlohmann::json tokenizer = json_of(folder / "tokenizer_config.json");
  return tokenizer.is_object() && tokenizer.contains("chat_template") && !tokenizer["chat_template"].is_null();
}

bool is_of(const TemplateFamily& family, const Importer& to) {
  constexpr std::int64_t large = 100000;
  if (to.has_model_folder()) {
    const nlohmann::json config = json_of(fs::path(to.model()) / "config.json");
    if (!config.is_object() || config.value("model_type", "") != family.model_type) return false;
    const bool llama = family.model_type == "llama";
    return !llama || (config.value("vocab_size", std::int64_t{0}) > large) == family.large_vocabulary;
  }
  std::string name = base::lower(to.model());
  std::erase_if(name, [](char c) { return c == '-' || c == '_' || c == '.'; });
  return name.find(family.in_name) != name.npos;
}

}  // namespace

void import_named_template(Importer& to, const std::string& name) {
  if (name == "tokenizer_default") return to.ignore("as here");
  if (name == "chatml") return to.set("data.chat_template", std::string(chatml));
  const bool folder = to.has_model_folder();
  if (name.starts_with("tokenizer_default_fallback_")) {
    return folder && has_template(to.model())
               ? to.ignore("the model's folder has a template, which is used")
               : to.refuse("the model's folder must have a template; or write one into a file and set data.chat_template");
  }
  const TemplateFamily* family = family_of(name);
  if (family == nullptr || !is_of(*family, to)) {
    return to.refuse(
        fmt::format("{}'s own template of this name is not built in. Leave the key out to use the one of the model's folder, or "
                    "write it into a file and set data.chat_template",
                    to.program().name));
  }
  if (folder && !has_template(to.model()))
    return to.refuse("the model's folder has no chat template: write one into a file and set data.chat_template");
  to.note(fmt::format("the chat template of the model's folder is used, not {}'s copy of it; `lockstep data inspect` shows the text",
                      to.program().name));
}

void import_template(Importer& to, const YAML::Node& value) {
  const std::string text = value.IsScalar() ? value.Scalar() : "";
  std::error_code error;
  if (text.find("{{") != text.npos || text.find("{%") != text.npos) return to.set("data.chat_template", text);
  const bool short_enough = text.size() < 4096 && text.find('\n') == text.npos;
  if (short_enough && fs::is_regular_file(text, error)) return to.set("data.chat_template", text);
  if (short_enough && fs::is_regular_file(fs::path(text) / "chat_template.jinja", error))
    return to.set("data.chat_template", (fs::path(text) / "chat_template.jinja").string());
  to.refuse("no such file here: write the template into a file and set data.chat_template");
}

}  // namespace lockstep::config
