// The built-in stories as one row of tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "rank/data/tokens.h"
#include "corpus/stories/stories.h"

namespace lockstep::data {

std::shared_ptr<const Tokens> story_tokens(const corpus::StoryMaker& maker, std::int64_t stories, std::int64_t seed);

}  // namespace lockstep::data
