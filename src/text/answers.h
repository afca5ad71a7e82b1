// Where the assistant's answers lie in a rendered conversation, for templates that do not mark them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::text {

struct TurnEnds {
  std::span<const std::string> end_texts;      // tokens at which generation stops
  std::span<const std::string> special_texts;  // all special tokens
};

// A part of the text that the template wrote while it was at one message.
struct Turn {
  std::uint32_t message = 0;
  TokenSpan span;
};

// Renders the first messages of the conversation; `prompt` asks for the generation prompt. May throw.
using RenderPart = std::function<std::string(const nlohmann::ordered_json& messages, bool prompt)>;

// One span for each assistant message: from behind the header to the end-of-turn token, that token included.
std::vector<TokenSpan> find_answers(const nlohmann::ordered_json& messages, std::string_view text, std::span<const Turn> turns,
                                    const TurnEnds& ends, std::string_view where, const RenderPart& render);

}  // namespace lockstep::text
