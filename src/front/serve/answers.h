// What every answer of the page is made with: JSON out, settings in.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "front/serve/form/form.h"
#include "front/http/message.h"

namespace lockstep::serve {

// As it is sent; bytes that are no text are replaced.
std::string to_text(const nlohmann::ordered_json& json);
http::Response json_answer(const nlohmann::ordered_json& json, int status = 200);
// {"settings": {"trainer.learning_rate": "3e-4", "lora.enabled": true}} as texts. UserError for anything else.
Values values_in(const nlohmann::ordered_json& body);

}  // namespace lockstep::serve
