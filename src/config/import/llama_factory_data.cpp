// LLaMA-Factory's dataset_info.json: what a name in it stands for, as settings of ours.
#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/import/llama_factory.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Setting = std::pair<std::string, std::string>;  // ours, value

// One entry of dataset_info.json, checked key by key; what cannot be read as it is meant there is refused or ends the import.
class Entry {
 public:
  Entry(Importer& to, std::string name, const Json& entry, bool pretraining)
      : to_(to), name_(std::move(name)), entry_(entry), pretraining_(pretraining) {}

  std::vector<Setting> settings() {
    for (const auto& [key, value] : entry_.items()) own_key(key, value);
    for (const char* part : {"columns", "tags"}) {
      if (!entry_.contains(part) || !entry_[part].is_object()) continue;
      for (const auto& [key, value] : entry_[part].items()) known(part, key, value);
    }
    const std::string formatting = entry_.value("formatting", "alpaca");
    formatting == "alpaca" ? alpaca() : chat(formatting);
    return std::move(settings_);
  }

 private:
  void at(const std::string& key, const Json& value) {
    to_.enter(fmt::format("dataset {}.{}", name_, key), YAML::Node(value.is_string() ? value.get<std::string>() : value.dump()));
  }

  void own_key(const std::string& key, const Json& value) {
    at(key, value);
    if (value.is_null() || key == "file_name" || key == "columns" || key == "tags") return;
    if (key == "formatting") {
      if (value != "alpaca" && value != "sharegpt" && value != "openai") to_.refuse("there are alpaca, sharegpt and openai");
    } else if (key == "ranking") {
      if (value.is_boolean() && value.get<bool>()) to_.stop(no_preferences);
    } else if (key == "split") {
      if (value != "train") to_.refuse("a file is read whole; data.max_samples takes the first so many");
    } else if (key.ends_with("_url")) {
      to_.refuse(
          "a dataset on the Hub, and nothing is downloaded while training: fetch it as JSONL or Parquet and give it with --data FILE");
    } else if (key == "num_samples") {
      to_.refuse("draws so many records at random; data.max_samples takes the first so many");
    } else {
      to_.refuse("not a key of dataset_info.json that this command knows");
    }
  }

  void known(const std::string& part, const std::string& key, const Json& value) {
    static constexpr std::array columns = {"prompt", "query", "response", "history", "messages", "system", "tools"};
    static constexpr std::array tags = {"role_tag",        "content_tag",  "user_tag",  "assistant_tag",
                                        "observation_tag", "function_tag", "system_tag"};
    at(part + "." + key, value);
    if (value.is_null()) return;
    if (key == "chosen" || key == "rejected" || key == "kto_tag") to_.stop(no_preferences);
    if (key == "images" || key == "videos" || key == "audios") to_.stop(no_media);
    const bool listed = part == "columns" ? std::find(columns.begin(), columns.end(), key) != columns.end()
                                          : std::find(tags.begin(), tags.end(), key) != tags.end();
    if (!listed || !value.is_string()) to_.refuse("not a key of dataset_info.json that this command knows");
  }

  // Where an entry has columns at all, those it does not name are not read.
  std::string column(const std::string& name, const std::string& otherwise) const {
    if (!entry_.contains("columns") || !entry_["columns"].is_object()) return otherwise;
    const Json& columns = entry_["columns"];
    return columns.contains(name) && columns[name].is_string() ? columns[name].get<std::string>() : "";
  }
  std::string tag(const std::string& name, const std::string& otherwise) const {
    if (!entry_.contains("tags") || !entry_["tags"].is_object()) return otherwise;
    const Json& tags = entry_["tags"];
    return tags.contains(name) && tags[name].is_string() ? tags[name].get<std::string>() : "";
  }

  void set(const char* ours, std::string value) { settings_.emplace_back(ours, std::move(value)); }

  void optional_fields() {
    for (const auto& [ours, theirs] :
         std::array<std::pair<const char*, const char*>, 2>{{{"data.system_field", "system"}, {"data.tools_field", "tools"}}}) {
      const std::string name = column(theirs, "");
      set(ours, name.empty() ? "none" : name);
    }
  }

  void alpaca() {
    const std::string prompt = column("prompt", "instruction"), query = column("query", "input"), response = column("response", "output");
    const std::string history = column("history", "");
    if (prompt.empty() || (response.empty() && !pretraining_)) {
      at("columns", entry_["columns"]);
      return to_.refuse("must name prompt and response");
    }
    if (pretraining_) {
      set("data.format", "text");
      return set("data.text_field", prompt);
    }
    set("data.format", "alpaca");
    set("data.prompt_field", prompt);
    set("data.completion_field", response);
    set("data.input_field", query.empty() ? "none" : query);
    set("data.history_field", history.empty() ? "none" : history);
    optional_fields();
  }

  void chat(const std::string& formatting) {
    const std::string messages = column("messages", "conversations");
    if (messages.empty()) {
      at("columns", entry_["columns"]);
      return to_.refuse("must name messages");
    }
    const std::string role = tag("role_tag", "from"), content = tag("content_tag", "value");
    const bool plain = role == "role" && content == "content";
    set("data.format", formatting == "openai" || plain ? "messages" : "sharegpt");
    set("data.messages_field", messages);
    if (!plain && role != "from") set("data.role_field", role);
    if (!plain && content != "value") set("data.content_field", content);
    std::vector<std::string> roles;
    bool usual = true;
    for (const auto& [ours, theirs, otherwise] :
         std::array<std::array<const char*, 3>, 5>{{{"user", "user_tag", "human"},
                                                    {"assistant", "assistant_tag", "gpt"},
                                                    {"tool", "observation_tag", "observation"},
                                                    {"function_call", "function_tag", "function_call"},
                                                    {"system", "system_tag", "system"}}}) {
      const std::string name = tag(theirs, otherwise);
      if (name.empty()) continue;
      roles.push_back(fmt::format("{}={}", ours, name));
      usual = usual && (plain ? name == ours : name == otherwise);
    }
    if (!usual) set("data.roles", "[" + base::join(roles, ", ") + "]");
    optional_fields();
  }

  Importer& to_;
  std::string name_;
  const Json& entry_;
  bool pretraining_;
  std::vector<Setting> settings_;
};

}  // namespace

std::vector<std::string> llama_factory_dataset_names(const YAML::Node& value) {
  std::vector<std::string> names;
  if (value && value.IsSequence()) {
    for (const YAML::Node& item : value) names.push_back(item.IsScalar() ? item.Scalar() : "");
  } else if (value && value.IsScalar()) {
    for (const std::string& name : base::split(value.Scalar(), ',')) names.push_back(base::trim(name));
  }
  return names;
}

void llama_factory_dataset(Importer& to, const YAML::Node& value) {
  const fs::path folder = to.has("dataset_dir") ? to.text("dataset_dir") : "data";
  const fs::path file = folder / "dataset_info.json";
  std::error_code error;
  const Json info = fs::is_regular_file(file, error) ? base::json_if_any(base::read_text(file)).value_or(nullptr) : nullptr;
  std::vector<std::string> paths;
  std::vector<Setting> first;
  for (const std::string& name : llama_factory_dataset_names(value)) {
    to.enter("dataset", YAML::Node(name));
    if (!info.is_object() || !info.contains(name) || !info[name].is_object() || !info[name].contains("file_name") ||
        !info[name]["file_name"].is_string()) {
      to.refuse(fmt::format("{} does not name a file for it: give the file with --data FILE", file.string()));
      continue;
    }
    const std::vector<Setting> settings = Entry(to, name, info[name], to.text("stage") == "pt").settings();
    if (settings.empty()) continue;
    to.enter("dataset", YAML::Node(name));
    if (!paths.empty() && settings != first) {
      to.refuse(one_set);
      continue;
    }
    first = settings;
    paths.push_back((folder / info[name]["file_name"].get<std::string>()).string());
  }
  if (paths.empty()) return;
  to.enter("dataset", value);
  to.set("data.path", base::join(paths, ","));
  for (const auto& [ours, setting] : first) to.set(ours, setting);
}

}  // namespace lockstep::config
