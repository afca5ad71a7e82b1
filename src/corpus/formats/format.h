// What a record says: conversations, exchanges and texts out of the shapes that people keep them in.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/run_config.h"
#include "corpus/files/files.h"

namespace lockstep::corpus {

struct Conversation {
  Json messages = Json::array();  // [{"role": ..., "content": ..., ...}, ...], as chat templates take them
  Json tools;                     // null where there are none
  std::vector<bool> trained;      // one for each assistant message: false where it is only context
  // Arguments of calls are objects, and may be JSON texts instead where the template wants that: the record itself does not say.
  bool open_calls = false;
};
// A prompt and its answer, for models that have no chat template.
struct Exchange {
  std::string prompt, completion;
};
struct PlainText {
  std::string text;
};
using Content = std::variant<Conversation, Exchange, PlainText>;

// Which format the record is in, going by its fields and the settings data.*_field; nothing where it looks like none.
std::optional<config::RecordFormat> detect_format(const Json& record, const config::DataConfig& data);

// Throws Unreadable that names the field and what it should hold. chat: there is a template, so exchanges become conversations.
Content read_content(const Json& record, config::RecordFormat format, const config::DataConfig& data, bool chat);

// "messages, prompt" : the record's fields, for messages.
std::string fields_of(const Json& record);

}  // namespace lockstep::corpus
