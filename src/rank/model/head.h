// The end of the decoder: last norm, logits and their cross-entropy, in chunks of rows so that logits are never whole in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>

#include "rank/model/block.h"
#include "rank/model/buffers.h"

namespace lockstep::model {

class Head {
 public:
  // matrix: the unit whose first leaf is the output matrix, where that is not `unit`: a tied embedding, or a copy that is trained whole.
  // shared: it is the embedding's too, whose backward completes its gradient.
  // scratch: what blocks share, and the head with them.
  Head(const Dims& dims, Unit& unit, Unit* matrix, bool shared, BlockScratch& scratch);
  // The same elsewhere.
  Head(const Head& other, BlockScratch& scratch) : Head(other.dims_, other.unit_, &other.owner_, other.shared_, scratch) {}

  void release_buffers() { rstd_ = losses_ = correct_ = at::Tensor(); }
  // Memory is scarce: logits of few rows at a time.
  void set_lean(bool lean) {
    lean_ = lean;
    chunk_bytes_ = 0;
  }
  // The matrix's gradient is added to once a chunk: in 16 bits that may not be often.
  void set_most_chunks(std::int64_t most) { most_chunks_ = most; }
  // How often the last backward added to the gradient of the output matrix; of the owner's other backward, too, where that is shared.
  std::int64_t additions() const { return additions_; }
  const Unit& owner() const { return owner_; }
  std::int64_t logits_bytes() const { return logits_bytes_; }  // of the last chunk
  void add_to(HeldMemory& memory) const {
    for (const at::Tensor* buffer : {&rstd_, &losses_, &correct_}) memory.add(*buffer);
  }
  // Without gradients. targets: [rows] i64.
  Score score(const ResidualStream& stream, const at::Tensor& targets);
  // The summed loss, f32 scalar on the device; adds the gradients of scale * loss; dstream: [rows, hidden] receives the stream's gradient.
  // stream.delta is overwritten, here as in the others.
  at::Tensor loss_backward(const ResidualStream& stream, const at::Tensor& targets, const at::Tensor& scale, const at::Tensor& dstream);
  // [rows, vocab]
  at::Tensor logits(const ResidualStream& stream);

 private:
  // Returns the whole stream; its norm is in scratch.
  at::Tensor normalize(const ResidualStream& stream);
  std::int64_t chunk_rows(const at::Tensor& like);
  const at::Tensor& matrix() const { return owner_.weight(HeadLeaves::weight); }

  const Dims& dims_;
  const HeadLeaves leaves_;
  Unit& unit_;
  Unit& owner_;  // of the output matrix
  bool shared_;
  BlockScratch& scratch_;
  bool lean_ = false;
  std::int64_t chunk_bytes_ = 0;  // of logits; chosen at first use
  std::int64_t most_chunks_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t additions_ = 0, logits_bytes_ = 0;
  at::Tensor rstd_, losses_, correct_;
};

}  // namespace lockstep::model
