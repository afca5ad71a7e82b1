// Reads each format; everything that is not as it should be is said with the name of the field.
#include "corpus/formats/format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "corpus/formats/names.h"

namespace lockstep::corpus {
namespace {

using config::RecordFormat;
using Names = std::pair<std::string, std::string>;

// Pairs of fields that mean prompt and answer, the surest first.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> usual_pairs = {
    {{"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}, {"query", "response"}, {"input", "output"}}};

bool has(const Json& record, std::string_view name) { return record.contains(std::string(name)); }

// The names of prompt and answer in this record.
std::optional<Names> prompt_names(const Json& record, const config::DataConfig& data) {
  const std::string &prompt = data.prompt_field, &completion = data.completion_field;
  if (!prompt.empty() && !completion.empty())
    return has(record, prompt) && has(record, completion) ? std::optional(Names(prompt, completion)) : std::nullopt;
  for (const auto& [one, other] : usual_pairs) {
    const std::string first = prompt.empty() ? std::string(one) : prompt, second = completion.empty() ? std::string(other) : completion;
    if (has(record, first) && has(record, second)) return Names(first, second);
  }
  return std::nullopt;
}

std::string messages_name(const Json& record, const config::DataConfig& data) {
  if (!data.messages_field.empty()) return data.messages_field;
  return has(record, "messages") || !has(record, "conversations") ? "messages" : "conversations";
}

std::string text_name(const config::DataConfig& data) { return data.text_field.empty() ? "text" : data.text_field; }

std::string answer_name(const Json& record) { return has(record, "output") || !has(record, "response") ? "output" : "response"; }

// What a text holds where that is JSON, else null.
Json json_in(const Json& text) { return base::json_if_any(text.get_ref<const std::string&>()).value_or(nullptr); }

// Lists that passed through CSV or a data frame come as text.
Json list_of(const Json& value, std::string_view field) {
  if (value.is_array()) return value;
  if (value.is_string()) {
    Json parsed = json_in(value);
    if (parsed.is_array()) return parsed;
  }
  throw Unreadable(
      fmt::format("has {} in the field '{}', where a list of messages is needed", value.is_string() ? "text" : value.type_name(), field));
}

const Json& field(const Json& record, const std::string& name) {
  const auto found = record.find(name);
  if (found == record.end()) throw Unreadable(fmt::format("has no field '{}' (it has {})", name, fields_of(record)));
  return *found;
}

std::string text_field(const Json& record, const std::string& name) {
  const Json& value = field(record, name);
  if (!value.is_string()) throw Unreadable(fmt::format("has {} in the field '{}', where text is needed", value.type_name(), name));
  return value.get<std::string>();
}

std::string optional_text(const Json& record, const std::string& name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? "" : text_field(record, name);
}

// "weight": 0 or 1, or "train": false or true, as some tools write them; taken out of the message.
std::optional<bool> take_weight(Json& message, std::size_t number) {
  std::optional<bool> trained;
  for (const char* name : {"weight", "train"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    const bool good = found->is_null() || found->is_boolean() || (found->is_number() && (*found == 0 || *found == 1));
    if (!good) throw Unreadable(fmt::format("has {}: {} in message {}: it must be 0 or 1", name, found->dump(), number));
    if (found->is_boolean()) trained = found->get<bool>();
    if (found->is_number()) trained = *found == 1;
    message.erase(name);
  }
  return trained;
}

// Adds a message and whether it is trained. `number` counts from 1, for messages.
void add_message(Conversation& conversation, Json message, std::size_t number) {
  const auto trained = take_weight(message, number);
  if (message.at("role") == "assistant") {
    conversation.trained.push_back(trained.value_or(true));
  } else if (trained.value_or(false)) {
    throw Unreadable(fmt::format("wants message {} (role {}) trained: only what the assistant says is", number, message.at("role").dump()));
  }
  conversation.messages.push_back(std::move(message));
}

Json said(std::string_view role, std::string content) { return {{"role", role}, {"content", std::move(content)}}; }

// Tables keep a column for every field that any message has ("tool_calls": null): such a field is not there.
Json without_nulls(const Json& message) {
  Json kept = Json::object();
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null() || name == "content") kept[name] = value;
  }
  return kept;
}

void add_messages(Conversation& conversation, const Json& list, std::string_view field_name) {
  std::size_t number = 0;
  for (const Json& message : list) {
    ++number;
    if (!message.is_object())
      throw Unreadable(
          fmt::format("has {} as message {} of '{}', not an object with role and content", message.type_name(), number, field_name));
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      throw Unreadable(fmt::format("has no \"role\" in message {} of '{}' (it has {})", number, field_name, fields_of(message)));
    }
    const Json kept = without_nulls(message);
    const auto content = kept.find("content");
    // What a tool answers goes to the template as it is: nothing, or an object, too.
    if (const bool answers_call = *role == "tool" && content != kept.end(); !answers_call) {
      const bool without = content == kept.end() || content->is_null();
      if (without && !kept.contains("tool_calls"))
        throw Unreadable(fmt::format("has no \"content\" in message {} of '{}'", number, field_name));
      if (!without && !content->is_string() && !content->is_array()) {
        throw Unreadable(
            fmt::format("has {} as \"content\" of message {} of '{}', where text is needed", content->type_name(), number, field_name));
      }
    }
    add_message(conversation, kept, number);
  }
}

std::string role_of(const std::string& from, std::size_t number) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> roles = {{{"human", "user"},
                                                                                           {"user", "user"},
                                                                                           {"gpt", "assistant"},
                                                                                           {"assistant", "assistant"},
                                                                                           {"chatgpt", "assistant"},
                                                                                           {"bing", "assistant"},
                                                                                           {"bard", "assistant"},
                                                                                           {"model", "assistant"},
                                                                                           {"function_call", "assistant"},
                                                                                           {"system", "system"},
                                                                                           {"tool", "tool"},
                                                                                           {"observation", "tool"},
                                                                                           {"function_response", "tool"},
                                                                                           {"function", "tool"},
                                                                                           {"ipython", "tool"}}};
  for (const auto& [name, role] : roles) {
    if (base::lower(from) == name) return std::string(role);
  }
  throw Unreadable(fmt::format("has \"from\": \"{}\" in message {}: known are human, gpt, system, function_call and tool", from, number));
}

// Calls of tools and what the tools answer, as templates know them: each call has an id of nine letters, which some templates insist on.
class ToolTalk {
 public:
  // A function_call: {"name": ..., "arguments": ...}, or a list of them, perhaps behind a thought.
  Json call(std::string_view value, std::size_t number) {
    const std::size_t thought = value.rfind("</think>");
    const std::size_t begin = thought == value.npos ? 0 : thought + 8;
    Json calls = base::json_if_any(value.substr(begin)).value_or(nullptr);
    if (calls.is_object()) calls = Json::array({std::move(calls)});
    if (!calls.is_array() || calls.empty()) throw no_call(number);
    Json made = Json::array();
    waiting_.clear();
    for (const Json& call : calls) {
      if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) throw no_call(number);
      waiting_.push_back({fmt::format("call{:05}", ++count_), call["name"]});
      Json function{{"name", call["name"]}, {"arguments", arguments_of(call)}};
      made.push_back({{"id", waiting_.back().id}, {"type", "function"}, {"function", std::move(function)}});
    }
    return {{"role", "assistant"}, {"content", value.substr(0, begin)}, {"tool_calls", std::move(made)}};
  }

  // Answers come in the order of the calls.
  Json answer(std::string value) {
    Json message{{"role", "tool"}, {"content", std::move(value)}};
    if (waiting_.empty()) return message;
    message["name"] = waiting_.front().name;
    message["tool_call_id"] = waiting_.front().id;
    if (waiting_.size() > 1) waiting_.erase(waiting_.begin());
    return message;
  }

  bool called() const { return count_ > 0; }

 private:
  struct Call {
    std::string id, name;
  };

  static Unreadable no_call(std::size_t number) {
    return Unreadable(fmt::format("has a function_call in message {} that is no JSON object with \"name\" and \"arguments\"", number));
  }

  static Json arguments_of(const Json& call) {
    const auto found = call.find("arguments");
    if (found == call.end() || found->is_null()) return Json::object();
    if (!found->is_string()) return *found;
    Json parsed = json_in(*found);
    return parsed.is_object() ? parsed : *found;
  }

  std::vector<Call> waiting_;  // called, not answered yet
  std::size_t count_ = 0;
};

void add_sharegpt(Conversation& conversation, const Json& list, std::string_view field_name) {
  std::size_t number = 0;
  ToolTalk tools;
  for (const Json& turn : list) {
    ++number;
    if (!turn.is_object() || !turn.contains("from") || !turn.contains("value") || !turn["from"].is_string() || !turn["value"].is_string()) {
      throw Unreadable(fmt::format("has no \"from\" and \"value\" with text in message {} of '{}'{}", number, field_name,
                                   turn.is_object() ? fmt::format(" (it has {})", fields_of(turn)) : ""));
    }
    const std::string from = turn["from"], value = turn["value"];
    const std::string role = role_of(from, number);
    Json message = base::lower(from) == "function_call" ? tools.call(value, number)
                   : role == "tool"                     ? tools.answer(value)
                                                        : said(role, value);
    for (const char* name : {"weight", "train"}) {
      if (turn.contains(name)) message[name] = turn[name];
    }
    add_message(conversation, std::move(message), number);
  }
  conversation.open_calls = tools.called();
}

// The record's own system text, or the one of data.system_prompt, goes before conversations that have none.
void add_system(Conversation& conversation, const Json& record, const config::DataConfig& data) {
  const bool has_one =
      !conversation.messages.empty() && (conversation.messages[0]["role"] == "system" || conversation.messages[0]["role"] == "developer");
  std::string system = optional_text(record, "system");
  if (has_one) return;
  if (system.empty()) system = data.system_prompt;
  if (!system.empty()) conversation.messages.insert(conversation.messages.begin(), said("system", system));
}

// ShareGPT keeps bare descriptions of functions, {"name", "description", "parameters"}; templates know them inside {"type": "function"}.
Json wrapped(const Json& tool) {
  if (!tool.is_object() || tool.contains("function") || !tool.contains("name")) return tool;
  return {{"type", "function"}, {"function", tool}};
}

void add_tools(Conversation& conversation, const Json& record, RecordFormat format) {
  const auto tools = record.find("tools");
  if (tools == record.end() || tools->is_null()) return;
  Json list = tools->is_string() ? json_in(*tools) : *tools;
  if (tools->is_string() && tools->get_ref<const std::string&>().empty()) return;
  if (!list.is_array()) throw Unreadable("has no list of function descriptions in the field 'tools'");
  if (format == RecordFormat::sharegpt) std::transform(list.begin(), list.end(), list.begin(), wrapped);
  if (!list.empty()) conversation.tools = std::move(list);
}

Conversation finish(Conversation conversation, const Json& record, const config::DataConfig& data,
                    RecordFormat format = RecordFormat::messages) {
  add_system(conversation, record, data);
  add_tools(conversation, record, format);
  return conversation;
}

Conversation read_chat(const Json& record, RecordFormat format, const config::DataConfig& data) {
  const std::string name = messages_name(record, data);
  const Json list = with_usual_roles(list_of(field(record, name), name), format, data);
  if (list.empty()) throw Unreadable(fmt::format("has no messages in the field '{}'", name));
  Conversation conversation;
  (format == RecordFormat::messages ? add_messages : add_sharegpt)(conversation, list, name);
  return finish(std::move(conversation), record, data, format);
}

// history: [["question", "answer"], ...] before the instruction.
void add_history(Conversation& conversation, const Json& record) {
  const auto history = record.find("history");
  if (history == record.end() || history->is_null()) return;
  const Json turns = history->is_string() && history->get_ref<const std::string&>().empty() ? Json::array() : list_of(*history, "history");
  for (const Json& turn : turns) {
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
      throw Unreadable("has a field 'history' that is no list of [question, answer]");
    }
    conversation.messages.push_back(said("user", turn[0]));
    conversation.messages.push_back(said("assistant", turn[1]));
    conversation.trained.push_back(true);
  }
}

// The words that models of the Alpaca kind were first trained with.
std::string alpaca_prompt(const std::string& instruction, const std::string& input) {
  std::string prompt = "Below is an instruction that describes a task";
  if (!input.empty()) prompt += ", paired with an input that provides further context";
  prompt += fmt::format(". Write a response that appropriately completes the request.\n\n### Instruction:\n{}\n\n", instruction);
  if (!input.empty()) prompt += fmt::format("### Input:\n{}\n\n", input);
  return prompt + "### Response:\n";
}

Content read_alpaca(const Json& record, const config::DataConfig& data, bool chat) {
  const std::string instruction = text_field(record, data.prompt_field.empty() ? "instruction" : data.prompt_field);
  const std::string output = text_field(record, data.completion_field.empty() ? answer_name(record) : data.completion_field);
  const std::string input = optional_text(record, "input");
  if (data.prompt_style == config::PromptStyle::alpaca) return Exchange{alpaca_prompt(instruction, input), output};
  if (chat) {
    Conversation conversation;
    add_history(conversation, record);
    conversation.messages.push_back(said("user", input.empty() ? instruction : instruction + "\n" + input));
    conversation.messages.push_back(said("assistant", output));
    conversation.trained.push_back(true);
    return finish(std::move(conversation), record, data);
  }
  std::string prompt = optional_text(record, "system");
  if (prompt.empty()) prompt = data.system_prompt;
  if (!prompt.empty()) prompt += "\n\n";
  prompt += fmt::format("### Instruction:\n{}\n\n", instruction);
  if (!input.empty()) prompt += fmt::format("### Input:\n{}\n\n", input);
  return Exchange{prompt + "### Response:\n", output};
}

Content read_prompt(const Json& record, const config::DataConfig& data, bool chat) {
  const auto names = prompt_names(record, data);
  if (!names) {
    const std::string prompt = data.prompt_field.empty() ? "prompt" : data.prompt_field;
    field(record, prompt);
    field(record, data.completion_field.empty() ? "completion" : data.completion_field);
    throw base::Bug("a record without prompt and completion has both");
  }
  const Json &prompt = field(record, names->first), &completion = field(record, names->second);
  Conversation conversation;
  if (prompt.is_array()) {  // both are messages; what the assistant says in the prompt is context
    add_messages(conversation, prompt, names->first);
    std::fill(conversation.trained.begin(), conversation.trained.end(), false);
    if (completion.is_string())
      add_message(conversation, said("assistant", completion), conversation.messages.size() + 1);
    else
      add_messages(conversation, list_of(completion, names->second), names->second);
    return finish(std::move(conversation), record, data);
  }
  const std::string asked = text_field(record, names->first), answered = text_field(record, names->second);
  if (!chat) return Exchange{asked, answered};
  conversation.messages = Json::array({said("user", asked), said("assistant", answered)});
  conversation.trained = {true};
  return finish(std::move(conversation), record, data);
}

}  // namespace

std::string fields_of(const Json& record) {
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) {
    if (names.size() == 12) {
      names.emplace_back("...");
      break;
    }
    names.push_back(name);
  }
  return names.empty() ? "no fields" : base::join(names, ", ");
}

std::optional<RecordFormat> detect_format(const Json& record, const config::DataConfig& data) {
  const std::string name = messages_name(record, data);
  if (const auto found = record.find(name); found != record.end()) {
    const Json list = found->is_string() ? json_in(*found) : *found;
    if (list.is_array() && !list.empty() && list[0].is_object())
      return list[0].contains("from") ? RecordFormat::sharegpt : RecordFormat::messages;
    if (list.is_array() || !data.messages_field.empty()) return RecordFormat::messages;
  }
  if (!data.text_field.empty() && has(record, data.text_field)) return RecordFormat::text;
  if (has(record, "instruction") && has(record, answer_name(record)) && data.prompt_field.empty()) return RecordFormat::alpaca;
  if (prompt_names(record, data)) return RecordFormat::prompt_completion;
  if (has(record, text_name(data))) return RecordFormat::text;
  return std::nullopt;
}

Content read_content(const Json& given, RecordFormat format, const config::DataConfig& data, bool chat) {
  refuse_other_trainings(given, data);
  const bool renames = !data.system_field.empty() || !data.input_field.empty() || !data.history_field.empty() || !data.tools_field.empty();
  const std::optional<Json> renamed = renames ? std::optional(with_usual_fields(given, data)) : std::nullopt;
  const Json& record = renamed ? *renamed : given;
  switch (format) {
    case RecordFormat::messages:
    case RecordFormat::sharegpt: return read_chat(record, format, data);
    case RecordFormat::alpaca: return read_alpaca(record, data, chat);
    case RecordFormat::prompt_completion: return read_prompt(record, data, chat);
    case RecordFormat::text: return PlainText{text_field(record, text_name(data))};
    case RecordFormat::automatic: break;
  }
  throw base::Bug("a record is read after its format is known");
}

}  // namespace lockstep::corpus
