// Keys and values of the tokens that sequences have seen: what attention keeps, so that the next token need not compute them again.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/model/decode_cache.h"
#include "rank/model/parts/attention.h"

namespace lockstep::model {

class KeyValues final : public DecodeState {
 public:
  KeyValues(const Dims& dims, std::int64_t batch, const at::TensorOptions& options);

  void reserve(std::int64_t room, std::int64_t used) override;
  void keep(const at::Tensor& rows) override;

  // Keeps the new keys and values and returns attention's output [batch x time, heads x head_dim]. heads: rotated.
  at::Tensor attend(const HeadViews& heads, const DecodeStep& step);

 private:
  static void store(const at::Tensor& cache, const at::Tensor& fresh, const DecodeStep& step);

  at::Tensor keys_, values_;  // [batch, kv_heads, room, head_dim]
  AttentionSaved saved_;
};

}  // namespace lockstep::model
