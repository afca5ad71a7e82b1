// What two or more runs have different: their settings.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::runs {

struct Difference {
  std::string key;                                 // "trainer.learning_rate"
  std::vector<std::optional<std::string>> values;  // one a run; none where its config.yaml does not have the key
};

// In the order of the first run's file; the run's own name is left out. UserError where a config.yaml cannot be read.
std::vector<Difference> differing_settings(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::runs
