// A named range in the profiler's trace; costs nothing to speak of while no profiler runs.
#pragma once

#include <ATen/record_function.h>

#include <string>

namespace lockstep::model {

class TraceRange {
 public:
  explicit TraceRange(const std::string& name) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) range_.before(name);
  }

 private:
  at::RecordFunction range_;
};

}  // namespace lockstep::model
