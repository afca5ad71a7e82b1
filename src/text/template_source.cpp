// No path of a file has Jinja's brackets in it; no template that says anything is without them.
#include "text/template_source.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace lockstep::text {

TemplateSource read_template(const std::string& setting) {
  for (const char* mark : {"{{", "{%", "{#"}) {
    if (setting.find(mark) != setting.npos) return {setting, "data.chat_template"};
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(setting, error)) {
    constexpr std::size_t shown = 80;
    throw base::data_error(
        "data",
        "data.chat_template={} is no file, and no template: it has none of the brackets {{{{ and {{%. Give a file, or the "
        "template's text.",
        setting.size() > shown ? setting.substr(0, shown) + "..." : setting);
  }
  return {base::read_text(setting), setting};
}

}  // namespace lockstep::text
