// What one rank of a group has to say, on all of them.
#pragma once

#include <string>
#include <string_view>

#include "rank/comm/comm.h"

namespace lockstep::train {

// Collective. Returns rank 0's text on every rank; the others' `mine` is not looked at.
std::string text_from_first(const comm::Group& group, const std::string& mine, std::string_view what);
// Collective. Returns the text of the first rank that has one; empty where none has.
std::string first_text(const comm::Group& group, const std::string& mine, std::string_view what);

}  // namespace lockstep::train
