// Axolotl's datasets, chat templates and special tokens.
#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/import/axolotl.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view known_types =
    "types chat_template, alpaca and completion are read; bring others into messages, prompt and completion, or text (docs/data.md)";

void type(Importer& to, const YAML::Node& value) {
  const std::string name = scalar(value);
  if (name == "chat_template") return;  // the names of its messages say the rest
  if (name == "completion") return to.set("data.format", "text");
  if (name == "alpaca") {
    to.set("data.format", "alpaca");
    return to.set("data.prompt_style", "alpaca");  // Axolotl writes Stanford's words, whatever template the model has
  }
  if (name.starts_with("sharegpt"))
    return to.refuse("gone from Axolotl, which wrote it with FastChat's templates; use type: chat_template, or data.format = sharegpt");
  to.refuse(known_types);
}

// What a message calls who speaks and what is said.
struct MessageNames {
  std::string role = "role", content = "content";
};

MessageNames message_names(const YAML::Node& dataset) {
  MessageNames names;
  const YAML::Node map = dataset["message_property_mappings"];
  if (const std::string role = scalar(dataset["message_field_role"]); !role.empty()) names.role = role;
  if (const std::string content = scalar(dataset["message_field_content"]); !content.empty()) names.content = content;
  if (!map || !map.IsMap()) return names;
  if (const std::string role = scalar(map["role"]); !role.empty()) names.role = role;
  if (const std::string content = scalar(map["content"]); !content.empty()) names.content = content;
  return names;
}

void message_format(Importer& to, const YAML::Node& dataset) {
  const MessageNames names = message_names(dataset);
  if (names.role == "from" && names.content == "value") return to.set("data.format", "sharegpt");
  to.set("data.format", "messages");
  if (names.role != "role") to.set("data.role_field", names.role);
  if (names.content != "content") to.set("data.content_field", names.content);
}

void property_mappings(Importer& to, const YAML::Node& value) {
  if (!value.IsMap()) return to.refuse("must be a map");
  for (const auto& item : value) {
    const std::string ours = item.first.Scalar(), theirs = scalar(item.second);
    if (ours == "role" || ours == "content" || ours == theirs) continue;
    return to.refuse(fmt::format("{} is read under its own name; rename {} in the records", ours, theirs));
  }
  to.ignore("data.format, data.role_field and data.content_field say it");
}

// {assistant: [gpt, model]} as [assistant=gpt, assistant=model]. Names that are not in the map stay what they are in Axolotl.
void roles(Importer& to, const YAML::Node& value) {
  if (!value.IsMap()) return to.refuse("must be a map");
  YAML::Node list(YAML::NodeType::Sequence);
  std::vector<std::string> named;
  for (const auto& item : value) {
    const std::vector<YAML::Node> sources =
        item.second.IsSequence() ? std::vector<YAML::Node>(item.second.begin(), item.second.end()) : std::vector<YAML::Node>{item.second};
    for (const YAML::Node& source : sources) {
      list.push_back(item.first.Scalar() + "=" + scalar(source));
      named.push_back(scalar(source));
    }
  }
  for (const std::string role : {"user", "assistant", "system", "tool"}) {
    if (std::find(named.begin(), named.end(), role) == named.end()) list.push_back(role + "=" + role);
  }
  to.set("data.roles", list);
}

void split(Importer& to, const YAML::Node& value) {
  scalar(value) == "train" ? to.ignore("a file is read whole")
                           : to.refuse("a file is read whole; data.max_samples takes the first so many");
}

void roles_to_train(Importer& to, const YAML::Node& value) {
  for (const YAML::Node& role : value) {
    if (scalar(role) != "assistant" && scalar(role) != "gpt") return to.refuse("what assistants say is trained, or all: data.train_on");
  }
  value.size() > 0 ? to.ignore("as here") : to.refuse("what assistants say is trained, or all: data.train_on");
}

void axolotl_template(Importer& to, const YAML::Node& value) {
  if (scalar(value) == "jinja") return to.ignore("chat_template_jinja says it");
  import_named_template(to, scalar(value));
}

void taken(Importer&, const YAML::Node&) {}  // said where it was read

constexpr std::string_view not_built = "not built; bring the records into the form they are to be trained in";

constexpr std::array axolotl_dataset_rows = std::to_array<ImportRow>({
    converted("path", "", taken),
    converted("data_files", "", taken),
    converted("type", "data.format", type),
    converted("split", "", split),
    copied("field_messages", "data.messages_field"),
    copied("field_system", "data.system_field"),
    copied("field_tools", "data.tools_field"),
    copied("field", "data.text_field"),
    only("field_thinking", "reasoning_content", "the chat template reads reasoning_content; rename the field in the records"),
    only("template_thinking_key", "reasoning_content", "the chat template reads reasoning_content"),
    converted("message_property_mappings", "data.role_field, data.content_field", property_mappings),
    ignored("message_field_role", "data.format or data.role_field says it"),
    ignored("message_field_content", "data.format or data.content_field says it"),
    only("message_field_training", "train|weight", "messages say it with \"train\" or \"weight\"; rename the field in the records"),
    only_off("message_field_training_detail", "whole answers are trained"),
    converted("roles", "data.roles", roles),
    converted("roles_to_train", "", roles_to_train),
    only("train_on_eos", "turn", "the token that ends a trained turn is trained, and no other"),
    only("train_on_eot", "turn", "the token that ends a trained turn is trained, and no other"),
    converted("chat_template", "data.chat_template", axolotl_template),
    converted("chat_template_jinja", "data.chat_template", import_template),
    ignored("ds_type", "told by the file's name"),
    refused("name", "a part of a dataset on the Hub; fetch that part as JSONL"),
    ignored("revision", "a file is read as it is"),
    ignored("trust_remote_code", "files are read, never run"),
    refused("shards", "data.max_samples takes the first so many records"),
    refused("shards_idx", "data.max_samples takes the first so many records"),
    ignored("preprocess_shards", "records are read one by one"),
    refused("conversation", "a template of FastChat; the one of the model's folder is used, or data.chat_template"),
    only_off("split_thinking", not_built),
    only_off("drop_system_message", not_built),
    refused("input_transform", not_built),
    refused("input_format", not_built),
    refused("field_human", "rename the fields in the records"),
    refused("field_model", "rename the fields in the records"),
    refused("logprobs_field", "distillation is not built"),
    refused("temperature", "distillation is not built"),
    stops("field_chosen", no_preferences),
    stops("field_rejected", no_preferences),
});

// path: json with data_files: the files.
std::string path_of(const YAML::Node& dataset) {
  const YAML::Node files = dataset["data_files"];
  if (!files) return scalar(dataset["path"]);
  if (files.IsScalar()) return files.Scalar();
  std::vector<std::string> names;
  for (const YAML::Node& file : files) names.push_back(scalar(file));
  return base::join(names, ",");
}

// All but where it lies.
std::string settings_of(const YAML::Node& dataset) {
  YAML::Node copy = YAML::Clone(dataset);
  for (const char* key : {"path", "data_files", "ds_type"}) copy.remove(key);
  return YAML::Dump(copy);
}

bool refused_kind(const YAML::Node& dataset) {
  const std::string name = scalar(dataset["type"]);
  for (const std::string_view start : {"dpo", "kto", "orpo", "bradley_terry", "stepwise", "chatml.intel", "chatml.argilla", "chatml.ultra",
                                       "llama3.intel", "llama3.argilla", "llama3.ultra", "zephyr.nectar"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

}  // namespace

void axolotl_datasets(Importer& to, const YAML::Node& value) {
  if (!value.IsSequence() || value.size() == 0) return to.refuse("must be a list of datasets");
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const YAML::Node dataset = value[i];
    const std::string place = fmt::format("datasets[{}]", i);
    to.enter(place, dataset);
    if (!dataset.IsMap() || path_of(dataset).empty()) return to.refuse("has no path");
    if (refused_kind(dataset)) {
      to.enter(place + ".type", dataset["type"]);
      to.stop(no_preferences);
    }
    if (settings_of(dataset) == settings_of(value[0]))
      paths.push_back(path_of(dataset));
    else
      to.refuse(one_set);
  }
  const YAML::Node first = value[0];
  to.enter("datasets[0].path", first["path"] ? first["path"] : first);
  const auto missing = std::find_if_not(paths.begin(), paths.end(), import_is_data_file);
  missing != paths.end() ? import_data_path(to, YAML::Node(*missing)) : to.set("data.path", base::join(paths, ","));
  to.enter("datasets[0].type", first["type"] ? first["type"] : first);
  if (!first["type"]) to.refuse("there is none, so the data is tokenized already: give tokens as a .bin file with --data");
  if (scalar(first["type"]) == "chat_template") message_format(to, first);
  to.walk("datasets[0]", first, axolotl_dataset_rows);
}

void axolotl_pretraining(Importer& to, const YAML::Node& value) {
  const YAML::Node set = value.IsSequence() && value.size() == 1 ? value[0] : value;
  if (value.IsSequence() && value.size() > 1) return to.refuse(one_set);
  const std::string path = set.IsMap() ? path_of(set) : scalar(set);
  import_data_path(to, YAML::Node(path));
  to.set("data.format", "text");
  if (!set.IsMap()) return;
  if (const std::string column = scalar(set["text_column"]); !column.empty()) to.set("data.text_field", column);
  for (const auto& item : set) {
    const std::string key = item.first.Scalar();
    if (key == "path" || key == "data_files" || key == "text_column" || key == "trust_remote_code" || item.second.IsNull()) continue;
    to.enter("pretraining_dataset." + key, item.second);
    const std::string text = scalar(item.second);
    if (key == "type" && (text == "pretrain" || text == "completion"))
      to.ignore("as here");
    else if (key == "split" && text == "train")
      to.ignore("a file is read whole");
    else
      to.refuse("a file is read whole, from its start");
  }
}

void axolotl_chat_template(Importer& to, const YAML::Node& value) {
  const YAML::Node datasets = to.file()["datasets"];
  bool chats = false;
  for (const YAML::Node& dataset : datasets) chats = chats || (dataset.IsMap() && scalar(dataset["type"]) == "chat_template");
  if (datasets && !chats) return to.ignore("no dataset is of type chat_template");
  axolotl_template(to, value);
}

void axolotl_chat_template_jinja(Importer& to, const YAML::Node& value) {
  const std::string name = to.text("chat_template");
  if (!name.empty() && name != "jinja") return to.ignore("chat_template names another");
  import_template(to, value);
}

void axolotl_special_tokens(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("empty");
  if (!value.IsMap()) return to.refuse("must be a map");
  std::error_code error;
  const fs::path file = fs::path(to.model()) / "tokenizer_config.json";
  const nlohmann::json own = fs::is_regular_file(file, error) ? base::json_if_any(base::read_text(file)).value_or(nullptr) : nullptr;
  for (const auto& item : value) {
    const std::string name = item.first.Scalar();
    to.enter("special_tokens." + name, item.second);
    const nlohmann::json token = own.is_object() && own.contains(name) ? own[name] : nlohmann::json();
    const std::string here = token.is_string() ? token.get<std::string>() : token.is_object() ? token.value("content", "") : "";
    if (item.second.IsNull())
      to.ignore("empty");
    else if (name == "pad_token")
      to.ignore("padding is neither seen nor trained");
    else if (!here.empty() && here == scalar(item.second))
      to.ignore("as in the model's folder");
    else
      to.refuse("the tokenizer's own are used; change them in tokenizer_config.json of the model's folder");
  }
}

}  // namespace lockstep::config
