// The shape of a dataset without its content: all that a rank needs to know which is handed its batches by another.
#pragma once

#include <string>

#include "rank/data/data.h"

namespace lockstep::data {

// As text, to be sent.
std::string outline_of(const Dataset& dataset);
// A dataset whose samples have the right shapes and hold nothing. Its language is not part of an outline.
Dataset dataset_of_outline(const std::string& outline);

}  // namespace lockstep::data
