// Flags that verbs share which write model folders.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::app {

// "f32", "f16", "bf16" for any spelling, "" for none; UserError otherwise.
std::string dtype_flag(const std::string& verb, const std::string& text);
// "5GB" is 5000000000 as in transformers, "5GiB" is 5 x 2^30.
std::uint64_t shard_size_flag(const std::string& verb, const std::string& text);
// The path without a slash at its end; UserError where something is there already.
std::string new_output_folder(const std::string& verb, std::string path);

}  // namespace lockstep::app
