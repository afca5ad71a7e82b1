// What a model wrote, made safe to show.
#pragma once

#include <string>

namespace lockstep::text {

// A model may write anything: what would steer a terminal becomes a dot. Lines and tabs stay.
std::string harmless(std::string text);

}  // namespace lockstep::text
