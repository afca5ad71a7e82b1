// Numbers and switches become the text that a person would type.
#include "front/serve/answers.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::serve {

using Json = nlohmann::ordered_json;

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

http::Response json_answer(const Json& json, int status) { return {.status = status, .body = to_text(json)}; }

Values values_in(const Json& body) {
  Values values;
  const auto settings = body.find("settings");
  if (settings == body.end()) return values;
  if (!settings->is_object() || settings->size() > 500) throw base::usage_error("ui", "settings must be an object of keys and values.");
  for (const auto& [key, value] : settings->items()) {
    if (value.is_null()) continue;
    if (value.is_structured()) throw base::usage_error("ui", "{}: lists are written as text, such as \"0,1\".", key.substr(0, 80));
    values[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return values;
}

}  // namespace lockstep::serve
