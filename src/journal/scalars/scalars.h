// The numbers of a run under the names by which TensorBoard and Weights & Biases group them, and what writes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "journal/metrics.h"

namespace lockstep::journal {

struct Scalar {
  std::string name;  // "train/loss", "rank-1/data"
  double value = 0;
};
std::vector<Scalar> scalars_of(const StepLine& line);
std::vector<Scalar> scalars_of(const EvalLine& line);

// One thread.
class ScalarWriter {
 public:
  virtual ~ScalarWriter() = default;
  virtual void write(std::int64_t step, std::span<const Scalar> scalars) = 0;
};

}  // namespace lockstep::journal
