// What makes two models the same one, by name: weights of the one fit the other, and mean the same there.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "config/run_config.h"

namespace lockstep::layout {

struct ShapeKey {
  std::string_view name;  // as a setting of model., and in a checkpoint's state.json
  std::variant<std::int64_t, double, bool, std::string_view, config::RopeScalingConfig> value;
};
// In the order in which checkpoints tell them. With defaults filled in.
std::vector<ShapeKey> shape_of(const config::ModelConfig& model);

}  // namespace lockstep::layout
