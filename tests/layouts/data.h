// What the cases of the table train on: little files whose samples are one global batch, so that every layout takes the same step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::layouts {

struct DataFiles {
  std::int64_t samples;  // for training
  std::vector<std::string> settings;
};

void write_data(const std::string& folder);
// kind: a value of the column "model and data".
DataFiles data_files(const std::string& folder, const std::string& kind);

}  // namespace lockstep::layouts
