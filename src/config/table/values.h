// Every setting as a key and a text, for whoever compares or stores settings without knowing what they mean.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace lockstep::config {

struct KeyValue {
  std::string key;    // "trainer.learning_rate"
  std::string value;  // as it is written in a file
};

std::vector<KeyValue> key_values(const RunConfig& config);  // in the table's order

}  // namespace lockstep::config
