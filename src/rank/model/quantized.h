// A frozen matrix held in few bits a weight: NF4 as bitsandbytes holds it, or blockwise int8.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/model/unit.h"

namespace lockstep::model {

class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;
  // The weights [out, in] in 16 or 32 bits, written into `buffer`, which is made as large as needed and may be shared by matrices.
  virtual const at::Tensor& dense(at::Tensor& buffer) const = 0;
};

}  // namespace lockstep::model
