// Cutting a long text into parts that give the tokens of the whole.
#pragma once

#include <optional>
#include <string_view>

#include "text/tokenizer.h"

namespace lockstep::tokenize {

// A place at or behind `middle` where cutting changes no token, as the text around it shows: the two sides, encoded apart, give the
// tokens that they give together. Nothing where there is none near: a tokenizer may not have such places at all.
std::optional<std::size_t> find_cut(const text::Tokenizer& tokenizer, std::string_view text, std::size_t middle);

}  // namespace lockstep::tokenize
