// Reads what stands beside a tokenizer.json: names of special tokens, the chat template, where generation stops.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/read_file.h"
#include "text/tokenizer.h"

namespace lockstep::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// An empty object where there is no such file.
Json read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Json::object();
  try {
    Json json = base::parse_json(read_file(path));
    if (json.is_object()) return json;
  } catch (const base::JsonError& failure) {
    throw base::data_error("text", "{} is not JSON: {}. Copy it again from where the model came from.", path.string(), failure.what());
  }
  throw base::data_error("text", "{} holds no JSON object. Copy it again from where the model came from.", path.string());
}

// "<s>" or {"content": "<s>", ...}; empty for anything else.
std::string spelling(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string()) return token["content"].get<std::string>();
  return {};
}

void collect_names(const Json& from, TokenizerFiles& files) {
  for (const auto& [name, value] : from.items()) {
    if (!name.ends_with("_token")) continue;
    const std::string text = spelling(value);
    const auto known = [&](const auto& pair) { return pair.first == name; };
    if (!text.empty() && std::none_of(files.named.begin(), files.named.end(), known)) files.named.emplace_back(name, text);
  }
}

std::string named(const TokenizerFiles& files, std::string_view name) {
  for (const auto& [key, text] : files.named)
    if (key == name) return text;
  return {};
}

// A template, or a list of templates with names, of which the one called default counts.
std::string template_of(const Json& value, const fs::path& path) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return {};
  if (value.is_array()) {
    for (const Json& entry : value) {
      if (entry.is_object() && entry.value("name", "") == "default" && entry.contains("template") && entry["template"].is_string())
        return entry["template"].get<std::string>();
    }
  }
  throw base::data_error("text",
                         "{}: chat_template is neither a text nor a list with one named \"default\". Write the template to "
                         "chat_template.jinja beside it.",
                         path.string());
}

void find_template(const fs::path& folder, const Json& tokenizer_config, TokenizerFiles& files) {
  std::error_code ignored;
  const auto take = [&](std::string source, const char* name) {
    files.chat_template = std::move(source);
    if (!files.chat_template.empty()) files.chat_template_from = (folder / name).string();
    return !files.chat_template.empty();
  };
  if (fs::exists(folder / "chat_template.jinja", ignored) && take(read_file(folder / "chat_template.jinja"), "chat_template.jinja")) return;
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const Json holder = std::string_view(name) == "tokenizer_config.json" ? tokenizer_config : read_object(folder / name);
    if (holder.contains("chat_template") && take(template_of(holder["chat_template"], folder / name), name)) return;
  }
}

Json ids_of_config(const fs::path& folder) {
  const Json config = read_object(folder / "config.json");
  const Json ids = config.value("eos_token_id", Json());
  if (!ids.is_null() || !config.contains("text_config") || !config["text_config"].is_object()) return ids;
  return config["text_config"].value("eos_token_id", Json());
}

void find_end_tokens(const fs::path& folder, const Tokenizer& tokenizer, TokenizerFiles& files) {
  const auto add = [&](std::int32_t number) {
    if (std::find(files.end_tokens.begin(), files.end_tokens.end(), number) != files.end_tokens.end()) return;
    files.end_tokens.push_back(number);
    if (std::string text = tokenizer.token(number); !text.empty()) files.end_texts.push_back(std::move(text));
  };
  std::error_code ignored;
  // As transformers has it: the model's own config counts where no file says how it generates.
  const bool said = fs::exists(folder / "generation_config.json", ignored);
  const Json ids = said ? read_object(folder / "generation_config.json").value("eos_token_id", Json()) : ids_of_config(folder);
  const Json list = ids.is_array() ? ids : ids.is_null() ? Json::array() : Json::array({ids});
  for (const Json& id : list) {
    if (!said && (!id.is_number_integer() || id < 0)) continue;  // stands for none
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > INT32_MAX) {
      throw base::data_error("text", "{}: eos_token_id {} is no token number. Give a number or a list of numbers.",
                             (folder / (said ? "generation_config.json" : "config.json")).string(), id.dump());
    }
    add(id.get<std::int32_t>());
  }
  if (files.eos.empty()) return;
  if (const auto number = tokenizer.find(files.eos)) add(*number);
}

}  // namespace

TokenizerFiles read_tokenizer_files(const fs::path& folder) {
  TokenizerFiles files;
  const Json config = read_object(folder / "tokenizer_config.json");
  collect_names(config, files);
  collect_names(read_object(folder / "special_tokens_map.json"), files);
  files.bos = named(files, "bos_token");
  files.eos = named(files, "eos_token");
  files.pad = named(files, "pad_token");
  files.unk = named(files, "unk_token");
  if (config.contains("add_bos_token") && config["add_bos_token"].is_boolean()) files.adds_bos = config["add_bos_token"].get<bool>();
  find_template(folder, config, files);
  return files;
}

TokenizerFiles read_tokenizer_files(const fs::path& folder, const Tokenizer& tokenizer) {
  TokenizerFiles files = read_tokenizer_files(folder);
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.special) files.special_texts.push_back(token.text);
  find_end_tokens(folder, tokenizer, files);
  return files;
}

}  // namespace lockstep::text
