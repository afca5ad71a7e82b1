// Settings that follow from a model folder, where model.path names one.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep::config {

// Takes the model's shape, name and dtype from model.path/config.json. Returns what a person set otherwise, one sentence each.
std::vector<std::string> follow_model_folder(Settings& settings);

// data.seq_len where nobody set it: the model's whole length, or 2048 where that comes from a folder and may be 131072.
std::int64_t standard_seq_len(const ModelConfig& model);

// load() for files that to_yaml() wrote: they are complete, so the model folder is not read again and may be gone by now.
Settings load_complete(const Request& request);

}  // namespace lockstep::config
