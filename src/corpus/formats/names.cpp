// Renames what the settings name; looks for the marks of other trainings.
#include "corpus/formats/names.h"

#include <array>

#include "base/text.h"

namespace lockstep::corpus {
namespace {

struct FieldName {
  const std::string config::DataConfig::*setting;
  const char* usual;
};
constexpr std::array<FieldName, 4> field_names = {{{&config::DataConfig::system_field, "system"},
                                                   {&config::DataConfig::input_field, "input"},
                                                   {&config::DataConfig::history_field, "history"},
                                                   {&config::DataConfig::tools_field, "tools"}}};

constexpr std::array<std::string_view, 9> media_fields = {"images", "image",      "videos",     "video",       "audios",
                                                          "audio",  "audio_path", "image_path", "pixel_values"};
constexpr std::array<std::string_view, 7> media_parts = {"image", "image_url", "input_image", "video", "video_url", "audio", "input_audio"};

template <std::size_t size>
bool is_one_of(const std::array<std::string_view, size>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void rename(Json& object, const std::string& from, const char* to) {
  const auto found = object.find(from);
  if (found == object.end() || from == to) return;
  Json value = std::move(*found);
  object.erase(from);
  object[to] = std::move(value);
}

// Our name of a role that records call `theirs`.
std::string role_by(const std::vector<std::string>& roles, const std::string& theirs, std::size_t number) {
  std::vector<std::string> known;
  for (const std::string& pair : roles) {
    const std::size_t equals = pair.find('=');
    const std::string name = base::trim(pair.substr(equals + 1));
    if (name == theirs) return base::trim(pair.substr(0, equals));
    known.push_back(name);
  }
  throw Unreadable(fmt::format("has the role \"{}\" in message {}, which data.roles does not name (it names {})", theirs, number,
                               base::join(known, ", ")));
}

// The type of the first image, video or sound among the parts of a message's content; empty where there is none.
std::string media_part_of(const Json& message) {
  const auto content = message.is_object() ? message.find("content") : message.end();
  if (!message.is_object() || content == message.end() || !content->is_array()) return "";
  for (const Json& part : *content) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) continue;
    if (is_one_of(media_parts, type->get_ref<const std::string&>())) return *type;
  }
  return "";
}

void refuse_media(const Json& record) {
  for (const auto& [name, value] : record.items()) {
    if (is_one_of(media_fields, name) && !is_empty(value)) {
      throw Unreadable(
          fmt::format("holds {}: language models are trained on text, and the rest of it without them would be another lesson. "
                      "Take such records out, or remove the field where the text stands for itself",
                      name));
    }
    if (!value.is_array()) continue;
    for (const Json& message : value) {
      if (const std::string part = media_part_of(message); !part.empty())
        throw Unreadable(
            fmt::format("has a part of type {} in '{}': language models are trained on text. Take such records out", part, name));
    }
  }
}

}  // namespace

Json with_usual_fields(const Json& record, const config::DataConfig& data) {
  Json renamed = record;
  for (const FieldName& field : field_names) {
    const std::string& name = data.*field.setting;
    if (name.empty() || name == field.usual) continue;
    renamed.erase(field.usual);
    if (name != "none") rename(renamed, name, field.usual);
  }
  return renamed;
}

Json with_usual_roles(Json messages, config::RecordFormat format, const config::DataConfig& data) {
  if (data.role_field.empty() && data.content_field.empty() && data.roles.empty()) return messages;
  const bool sharegpt = format == config::RecordFormat::sharegpt;
  const char* const role = sharegpt ? "from" : "role";
  const char* const content = sharegpt ? "value" : "content";
  std::size_t number = 0;
  for (Json& message : messages) {
    ++number;
    if (!message.is_object()) continue;
    if (!data.role_field.empty()) rename(message, data.role_field, role);
    if (!data.content_field.empty()) rename(message, data.content_field, content);
    const auto who = message.find(role);
    if (!data.roles.empty() && who != message.end() && who->is_string())
      *who = role_by(data.roles, who->get_ref<const std::string&>(), number);
  }
  return messages;
}

void refuse_other_trainings(const Json& record, const config::DataConfig& data) {
  refuse_media(record);
  const bool named =
      !data.messages_field.empty() || !data.prompt_field.empty() || !data.completion_field.empty() || !data.text_field.empty();
  if (named) return;
  if (record.contains("chosen") && record.contains("rejected")) {
    throw Unreadable(
        "is one of preference training (chosen and rejected), which is not built. To train on the better answers alone name them: "
        "data.prompt_field and data.completion_field=chosen, or data.messages_field=chosen");
  }
  for (const char* name : {"label", "kto_tag"}) {
    const auto label = record.find(name);
    if (label == record.end() || !label->is_boolean() || record.contains("text")) continue;
    throw Unreadable(fmt::format(
        "is one of KTO ({} says whether its answer is a good one), which is not built. Keep the good ones, and remove the field", name));
  }
}

}  // namespace lockstep::corpus
