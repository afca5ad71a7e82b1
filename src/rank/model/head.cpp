// Loss of a chunk: logits -> losses and the logits' gradient in place -> gradients of input and matrix; then the next chunk.
#include "rank/model/head.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "layout/memory.h"
#include "rank/kernels/plugin.h"
#include "rank/model/buffers.h"
#include "rank/model/linear.h"

namespace lockstep::model {

namespace {

using base::ceil_div;

// A CPU wants the chunk in its cache. A GPU wants few chunks, since each reads and writes the matrix's whole gradient again: as many bytes
// as leave memory to the rest. Never what happens to be free: the cuts decide the order of sums.
// A frozen matrix has no gradient, so there a chunk need only be large enough to keep the device busy.
std::int64_t affordable_chunk(const at::Device& device, bool trained, bool lean) {
  if (!device.is_cuda()) return layout::cpu_logits_bytes;
  if (!trained || lean) return layout::lean_logits_bytes;
  std::uint64_t free = 0, total = 0;
  kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
  return layout::trained_logits_bytes(std::int64_t(total));
}

}  // namespace

Head::Head(const Dims& dims, Unit& unit, Unit* matrix, bool shared, BlockScratch& scratch)
    : dims_(dims), leaves_(dims), unit_(unit), owner_(matrix ? *matrix : unit), shared_(shared), scratch_(scratch) {
  static_assert(HeadLeaves::weight == kEmbeddingWeight, "an output matrix is the first leaf of its unit");
}

at::Tensor Head::normalize(const ResidualStream& stream) {
  const auto& options = stream.residual.options();
  const auto rows = stream.residual.size(0);
  fit(scratch_.norm, {rows, dims_.hidden}, options);
  fit(rstd_, {rows}, options.dtype(at::kFloat));
  // The sum takes the place of what was added.
  kernels::rms_norm_forward(stream.residual, stream.delta, unit_.weight(leaves_.norm), dims_.norm_eps, stream.delta, scratch_.norm, rstd_);
  return stream.delta.defined() ? stream.delta : stream.residual;
}

std::int64_t Head::chunk_rows(const at::Tensor& like) {
  if (chunk_bytes_ == 0) chunk_bytes_ = affordable_chunk(like.device(), owner_.trainable(), lean_);
  return layout::logits_chunk_rows(like.size(0), dims_.vocab, like.element_size(), chunk_bytes_, most_chunks_);
}

Score Head::score(const ResidualStream& stream, const at::Tensor& targets) {
  const at::Tensor loss = loss_backward(stream, targets, {}, {});
  return {loss, correct_.sum()};
}

at::Tensor Head::loss_backward(const ResidualStream& stream, const at::Tensor& targets, const at::Tensor& scale,
                               const at::Tensor& dstream) {
  const at::Tensor whole = normalize(stream);
  const at::Tensor& norm = scratch_.norm;
  const bool train = scale.defined();
  const auto rows = norm.size(0), chunk = chunk_rows(norm);
  fit(losses_, {rows}, norm.options().dtype(at::kFloat));
  if (!train) fit(correct_, {rows}, losses_.options());
  // Not kept from step to step: backward of the blocks takes as much for a while, and the two need not add up.
  const at::Tensor all_logits = at::empty({chunk, dims_.vocab}, norm.options());
  logits_bytes_ = std::int64_t(all_logits.nbytes());
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const auto count = std::min(chunk, rows - first);
    const auto x = norm.narrow(0, first, count), logits = all_logits.narrow(0, 0, count);
    linear(logits, x, matrix());
    kernels::cross_entropy(logits, targets.narrow(0, first, count), losses_.narrow(0, first, count), scale,
                           train ? at::Tensor() : correct_.narrow(0, first, count));
    if (!train) continue;
    linear_backward_input(dstream.narrow(0, first, count), logits, matrix());
    if (owner_.trainable()) linear_backward_weight(owner_.gradient(HeadLeaves::weight), logits, x);
  }
  if (train) {
    additions_ = ceil_div(rows, chunk) + (shared_ ? 1 : 0);
    if (owner_.trainable() && !shared_) owner_.gradient_ready(HeadLeaves::weight);
    kernels::rms_norm_backward(dstream, whole, unit_.weight(leaves_.norm), rstd_, dstream, kernels::Into::write,
                               unit_.gradient(leaves_.norm));
    unit_.gradient_ready(leaves_.norm);
  }
  return losses_.sum();
}

at::Tensor Head::logits(const ResidualStream& stream) {
  normalize(stream);
  auto out = at::empty({scratch_.norm.size(0), dims_.vocab}, scratch_.norm.options());
  linear(out, scratch_.norm, matrix());
  return out;
}

}  // namespace lockstep::model
