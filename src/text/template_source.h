// Where a chat template that a setting names comes from: a file, or the setting itself.
#pragma once

#include <string>

namespace lockstep::text {

struct TemplateSource {
  std::string source;
  std::string name;  // for messages: the file, or "data.chat_template"
};
// A text with {{, {% or {# is a template; any other is the name of a file. UserError(ExitCode::data) where there is no such file.
TemplateSource read_template(const std::string& setting);

}  // namespace lockstep::text
