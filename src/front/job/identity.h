// What all machines of a run must have in common: program, settings, data, base model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "journal/identity.h"

namespace lockstep::job {

// `prepared`: keys of tokenized data, which stand for its whole content. Other files count with their size and a hash: of all of it up
// to 16 MiB, of 64 pieces spread over it beyond.
journal::Identity identity_of(const config::RunConfig& config, std::span<const std::string> prepared);

// The version, and a hash of the sources this program was built from.
std::string build_id();

}  // namespace lockstep::job
