// Loss of a chunk: logits -> losses and the logits' gradient in place -> gradients of input and matrix; then the next chunk.
#include "rank/model/head.h"

#include <ATen/Context.h>

#include <algorithm>

#include "rank/kernels/plugin.h"
#include "rank/model/buffers.h"
#include "rank/model/linear.h"

namespace lockstep::model {

namespace {

constexpr std::int64_t kRowStep = 128;
constexpr std::int64_t kMiB = std::int64_t(1) << 20;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A CPU wants the chunk in its cache. A GPU wants few chunks, since each reads and writes the matrix's whole gradient again: what is
// free decides, within bounds that leave memory to the rest.
// A frozen matrix has no gradient, so there a chunk need only be large enough to keep the device busy.
std::int64_t affordable_chunk(const at::Device& device, bool trained, bool lean) {
  if (!device.is_cuda()) return kMiB;
  if (!trained) return (lean ? 64 : 256) * kMiB;
  if (lean) return 512 * kMiB;
  if (at::globalContext().deterministicAlgorithms()) return 512 * kMiB;  // sums are cut at the same places whatever else holds memory
  std::uint64_t free = 0, total = 0;
  kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
  const auto bytes = std::min({std::int64_t(free / 8), std::int64_t(total / 32), 2048 * kMiB});
  return std::max(bytes, 128 * kMiB);
}

}  // namespace

Head::Head(const Dims& dims, Unit& unit, Unit* matrix, bool shared)
    : dims_(dims), leaves_(dims), unit_(unit), owner_(matrix ? *matrix : unit), shared_(shared) {
  static_assert(HeadLeaves::weight == kEmbeddingWeight, "an output matrix is the first leaf of its unit");
}

void Head::normalize(const ResidualStream& stream) {
  const auto& options = stream.residual.options();
  const auto rows = stream.residual.size(0);
  if (stream.delta.defined()) {
    fit(x_, {rows, dims_.hidden}, options);
  } else {
    x_ = stream.residual;
  }
  fit(norm_, {rows, dims_.hidden}, options);
  fit(rstd_, {rows}, options.dtype(at::kFloat));
  kernels::rms_norm_forward(stream.residual, stream.delta, unit_.weight(leaves_.norm), dims_.norm_eps, x_, norm_, rstd_);
}

std::int64_t Head::chunk_rows(const at::Tensor& like) {
  if (chunk_bytes_ == 0) chunk_bytes_ = affordable_chunk(like.device(), owner_.trainable(), lean_);
  const auto rows = std::max<std::int64_t>(1, like.size(0));
  const auto most = std::max<std::int64_t>(kRowStep, chunk_bytes_ / (dims_.vocab * like.element_size()));
  const auto even = ceil_div(rows, ceil_div(rows, most));  // chunks of one size: the last is no sliver
  return std::min(rows, ceil_div(even, kRowStep) * kRowStep);
}

Score Head::score(const ResidualStream& stream, const at::Tensor& targets) {
  const at::Tensor loss = loss_backward(stream, targets, {}, {});
  return {loss, correct_.sum()};
}

at::Tensor Head::loss_backward(const ResidualStream& stream, const at::Tensor& targets, const at::Tensor& scale,
                               const at::Tensor& dstream) {
  normalize(stream);
  const bool train = scale.defined();
  const auto rows = norm_.size(0), chunk = chunk_rows(norm_);
  fit(losses_, {rows}, norm_.options().dtype(at::kFloat));
  fit(logits_, {chunk, dims_.vocab}, norm_.options());
  // Where the matrix is frozen, rows of the norm are done with when their gradient is written: it takes their place.
  if (train)
    dnorm_ = owner_.trainable() ? fit(dnorm_, {rows, dims_.hidden}, norm_.options()) : norm_;
  else
    fit(correct_, {rows}, losses_.options());
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const auto count = std::min(chunk, rows - first);
    const auto x = norm_.narrow(0, first, count), logits = logits_.narrow(0, 0, count);
    linear(logits, x, matrix());
    kernels::cross_entropy(logits, targets.narrow(0, first, count), losses_.narrow(0, first, count), scale,
                           train ? at::Tensor() : correct_.narrow(0, first, count));
    if (!train) continue;
    linear_backward_input(dnorm_.narrow(0, first, count), logits, matrix());
    if (owner_.trainable()) linear_backward_weight(owner_.gradient(HeadLeaves::weight), logits, x);
  }
  if (train) {
    if (owner_.trainable() && !shared_) owner_.gradient_ready(HeadLeaves::weight);
    kernels::rms_norm_backward(dnorm_, x_, unit_.weight(leaves_.norm), rstd_, dstream, kernels::Into::write, unit_.gradient(leaves_.norm));
    unit_.gradient_ready(leaves_.norm);
  }
  return losses_.sum();
}

at::Tensor Head::logits(const ResidualStream& stream) {
  normalize(stream);
  auto out = at::empty({norm_.size(0), dims_.vocab}, norm_.options());
  linear(out, norm_, matrix());
  return out;
}

}  // namespace lockstep::model
