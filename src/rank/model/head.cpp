// Loss of a chunk: logits -> losses and the logits' gradient in place -> gradients of input and matrix; then the next chunk.
#include "rank/model/head.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "layout/memory/memory.h"
#include "rank/kernels/plugin.h"
#include "rank/model/buffers.h"
#include "rank/model/projection/linear.h"

namespace lockstep::model {

namespace {

using base::ceil_div;

// A CPU wants the chunk in its cache. A GPU wants few chunks, since each reads and writes the matrix's whole gradient again: as many bytes
// as leave memory to the rest. Never what happens to be free: the cuts decide the order of sums.
// A frozen matrix has no gradient, so there a chunk need only be large enough to keep the device busy.
std::int64_t affordable_chunk(const at::Device& device, bool trained, bool lean) {
  std::uint64_t free = 0, total = 0;
  if (device.is_cuda()) kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
  const layout::LogitsRoom room = layout::logits_room(device.is_cuda(), trained, std::int64_t(total));
  return lean ? room.lean : room.whole;
}

}  // namespace

Head::Head(const Dims& dims, StoredUnit unit, std::optional<StoredUnit> matrix, bool shared)
    : dims_(dims), leaves_(dims), unit_(unit), owner_(matrix.value_or(unit)), shared_(shared) {
  static_assert(HeadLeaves::weight == kEmbeddingWeight, "an output matrix is the first leaf of its unit");
  set_lean(false);
}

void Head::set_lean(bool lean) { chunk_bytes_ = affordable_chunk(unit_.options().device(), owner_.trained(), lean); }

void Head::open(const Pass& pass) const {
  unit_.open(pass);
  if (owner_ != unit_) owner_.open(pass);
}

void Head::close(const Pass& pass) const {
  if (owner_ != unit_) owner_.close(pass);
  unit_.close(pass);
}

at::Tensor Head::normalize(const ResidualStream& stream, Workspace& work) const {
  const auto& options = stream.residual.options();
  const auto rows = stream.residual.size(0);
  fit(work.norm, {rows, dims_.hidden}, options);
  fit(work.head.rstd, {rows}, options.dtype(at::kFloat));
  // The sum takes the place of what was added.
  kernels::rms_norm_forward(stream.residual, stream.delta, unit_.weight(leaves_.norm), dims_.norm_eps, stream.delta, work.norm,
                            work.head.rstd);
  return stream.delta.defined() ? stream.delta : stream.residual;
}

std::int64_t Head::chunk_rows(const at::Tensor& like) const {
  return layout::logits_chunk_rows(like.size(0), dims_.vocab, like.element_size(), chunk_bytes_, most_chunks_);
}

Score Head::score(const ResidualStream& stream, const at::Tensor& targets, Workspace& work) const {
  const at::Tensor loss = loss_backward(stream, targets, {}, {}, work);
  return {loss, work.head.correct.sum()};
}

at::Tensor Head::loss_backward(const ResidualStream& stream, const at::Tensor& targets, const at::Tensor& scale, const at::Tensor& dstream,
                               Workspace& work) const {
  const at::Tensor whole = normalize(stream, work);
  const at::Tensor& norm = work.norm;
  const bool train = scale.defined();
  const auto rows = norm.size(0), chunk = chunk_rows(norm);
  const at::Tensor& losses = fit(work.head.losses, {rows}, norm.options().dtype(at::kFloat));
  if (!train) fit(work.head.correct, {rows}, losses.options());
  // Not kept from step to step: backward of the blocks takes as much for a while, and the two need not add up.
  const at::Tensor all_logits = at::empty({chunk, dims_.vocab}, norm.options());
  work.head.logits_bytes = std::int64_t(all_logits.nbytes());
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const auto count = std::min(chunk, rows - first);
    const auto x = norm.narrow(0, first, count), logits = all_logits.narrow(0, 0, count);
    linear(logits, x, matrix());
    kernels::cross_entropy(logits, targets.narrow(0, first, count), losses.narrow(0, first, count), scale,
                           train ? at::Tensor() : work.head.correct.narrow(0, first, count));
    if (!train) continue;
    linear_backward_input(dstream.narrow(0, first, count), logits, matrix());
    if (owner_.trained()) linear_backward_weight(owner_.gradient(HeadLeaves::weight), logits, x);
  }
  if (train) {
    work.head.additions = ceil_div(rows, chunk) + (shared_ ? 1 : 0);
    if (owner_.trained() && !shared_) owner_.complete(HeadLeaves::weight);
    kernels::rms_norm_backward(dstream, whole, unit_.weight(leaves_.norm), work.head.rstd, dstream, kernels::Into::write,
                               unit_.gradient(leaves_.norm));
    unit_.complete(leaves_.norm);
  }
  return losses.sum();
}

at::Tensor Head::logits(const ResidualStream& stream, Workspace& work) const {
  normalize(stream, work);
  auto out = at::empty({work.norm.size(0), dims_.vocab}, work.norm.options());
  linear(out, work.norm, matrix());
  return out;
}

}  // namespace lockstep::model
