// The end of the decoder: last norm, logits and their cross-entropy, in chunks of rows so that logits are never whole in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>

#include "rank/model/model.h"
#include "rank/model/workspace.h"

namespace lockstep::model {

class Head {
 public:
  // matrix: the unit whose first leaf is the output matrix, where that is not `unit`: a tied embedding, or a copy that is trained whole.
  // shared: it is the embedding's too, whose backward completes its gradient.
  Head(const Dims& dims, StoredUnit unit, std::optional<StoredUnit> matrix, bool shared);

  // Memory is scarce: logits of few rows at a time.
  void set_lean(bool lean);
  // The matrix's gradient is added to once per chunk: in 16 bits that may not be often.
  void set_most_chunks(std::int64_t most) { most_chunks_ = most; }
  const StoredUnit& owner() const { return owner_; }

  void open(const Pass& pass) const;
  void close(const Pass& pass) const;
  // Without gradients. targets: [rows] i64. The stream's delta is overwritten, here as in the others.
  Score score(const ResidualStream& stream, const at::Tensor& targets, Workspace& work) const;
  // The summed loss, f32 scalar on the device; adds the gradients of scale * loss; dstream: [rows, hidden] receives the stream's gradient.
  // work.head.additions: how often it added to the gradient of the output matrix; the embedding's backward counted, where that is shared.
  at::Tensor loss_backward(const ResidualStream& stream, const at::Tensor& targets, const at::Tensor& scale, const at::Tensor& dstream,
                           Workspace& work) const;
  // [rows, vocab]
  at::Tensor logits(const ResidualStream& stream, Workspace& work) const;

 private:
  // Returns the whole stream; its norm is in work.
  at::Tensor normalize(const ResidualStream& stream, Workspace& work) const;
  std::int64_t chunk_rows(const at::Tensor& like) const;
  const at::Tensor& matrix() const { return owner_.weight(HeadLeaves::weight); }

  const Dims& dims_;
  const HeadLeaves leaves_;
  StoredUnit unit_;
  StoredUnit owner_;  // of the output matrix
  bool shared_;
  std::int64_t chunk_bytes_ = 0;  // of logits
  std::int64_t most_chunks_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace lockstep::model
