// Projections: what an adapter brings first, then the frozen or trained product, which adds to it on its way out.
#include "rank/model/projection/projection.h"

#include "rank/kernels/kernels.h"
#include "rank/model/projection/linear.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::model {

namespace {

constexpr std::int64_t kFusedRows = 512;  // with fewer, tiles of many rows would multiply mostly nothing

}  // namespace

Projection::Projection(StoredUnit unit, std::size_t leaf, std::optional<std::size_t> bias, std::optional<Adapter> adapter)
    : unit_(unit), leaf_(leaf), bias_(bias), adapter_(std::move(adapter)) {}

const at::Tensor& Projection::weight(ProjectionScratch& scratch) const {
  const QuantizedMatrix* quantized = unit_.quantized(leaf_);
  return quantized ? quantized->dense(scratch.dense) : unit_.weight(leaf_);
}

void Projection::multiply(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          ProjectionKept& kept, const Dropout& dropout, ProjectionScratch& scratch) const {
  if (adapter_) {
    adapter_->forward_low(x, kept.low, dropout, scratch.adapter);
    adapter_->forward_out(out, kept.low);
  }
  if (scratch.fp8 && scratch.fp8->forward(out, x, weight, bias, into(), kept.scales)) return;
  linear(out, x, weight, bias, into());
}

void Projection::forward(const at::Tensor& out, const at::Tensor& x, ProjectionKept& kept, const Dropout& dropout,
                         ProjectionScratch& scratch) const {
  const at::Tensor& w = weight(scratch);
  const at::Tensor bias = bias_ ? unit_.weight(*bias_) : at::Tensor();
  const bool dora = adapter_ && adapter_->is_dora();
  multiply(out, x, w, dora ? at::Tensor() : bias, kept, dropout, scratch);
  if (!dora) return;
  kept.dora = adapter_->gain_over(w);
  out.mul_(kept.dora.gain);
  if (bias.defined()) out.add_(bias);
}

bool Projection::fuses_swiglu(const at::Tensor& gate_up, std::int64_t inner, const ProjectionScratch& scratch) const {
  const std::optional<std::int64_t> rank = adapter_ ? adapter_->rank() : std::optional<std::int64_t>(0);
  return gate_up.size(0) >= kFusedRows && !scratch.fp8 && !bias_ && !(adapter_ && adapter_->is_dora()) && rank &&
         kernels::fuses_swiglu(gate_up, inner, *rank);
}

void Projection::forward_swiglu(const at::Tensor& gate_up, const at::Tensor& swiglu, const at::Tensor& x, ProjectionKept& kept,
                                const Dropout& dropout, ProjectionScratch& scratch) const {
  const bool both_adapted = adapter_ && adapter_->parts() == 2;
  if (!fuses_swiglu(gate_up, x.size(1), scratch) || (adapter_ && !both_adapted)) {
    forward(gate_up, x, kept, dropout, scratch);
    kernels::swiglu_forward(gate_up, swiglu);
    return;
  }
  kernels::ThinProduct thin;
  if (adapter_) {
    adapter_->forward_low(x, kept.low, dropout, scratch.adapter);
    thin = {kept.low, adapter_->b()};
  }
  kernels::gate_up_swiglu(gate_up, swiglu, x, weight(scratch), thin);
}

const at::Tensor& Projection::gained(const at::Tensor& dout, const ProjectionScratch& scratch) const {
  return adapter_ && adapter_->is_dora() ? scratch.adapter.dproduct : dout;
}

void Projection::begin_backward(const at::Tensor& dout, const ProjectionKept& kept, ProjectionScratch& scratch) const {
  if (scratch.fp8) scratch.fp8->begin_backward();
  if (!adapter_) return;
  if (adapter_->is_dora()) {
    auto& dproduct = scratch.adapter.dproduct;
    fit(dproduct, dout.sizes(), dout.options());
    dproduct.copy_(dout).mul_(kept.dora.gain);
  }
  adapter_->backward_low(gained(dout, scratch), scratch.adapter);
}

void Projection::backward_input(const at::Tensor& dx, const at::Tensor& dout, const ProjectionKept& kept, const Dropout& dropout,
                                ProjectionScratch& scratch) const {
  const at::Tensor& d = gained(dout, scratch);
  const at::Tensor& w = weight(scratch);
  if (adapter_) adapter_->backward_input(dx, dropout, scratch.adapter);
  if (scratch.fp8 && scratch.fp8->backward_input(dx, d, w, into(), kept.scales, /*paired=*/unit_.trained())) return;
  linear_backward_input(dx, d, w, into());
}

void Projection::backward_swiglu(const at::Tensor& gate_up, const at::Tensor& swiglu, bool again, const at::Tensor& dout,
                                 const ProjectionKept& kept, const Dropout& dropout, ProjectionScratch& scratch) const {
  // Dropout comes between an adapter's share and the sum.
  if (!fuses_swiglu(gate_up, dout.size(1), scratch) || (adapter_ && adapter_->drops(dropout))) {
    backward_input(swiglu, dout, kept, dropout, scratch);
    kernels::swiglu_backward(gate_up, swiglu, gate_up, again ? swiglu : at::Tensor());
    return;
  }
  const auto thin = adapter_ ? kernels::ThinProduct{scratch.adapter.dlow, adapter_->a()} : kernels::ThinProduct{};
  kernels::down_backward_swiglu(gate_up, again ? swiglu : at::Tensor(), dout, weight(scratch), thin);
}

void Projection::backward_weight(const at::Tensor& dout, const at::Tensor& x, const ProjectionKept& kept, const Dropout& dropout,
                                 ProjectionScratch& scratch) const {
  if (unit_.trained()) {
    if (bias_) {
      kernels::bias_backward(dout, unit_.gradient(*bias_));
      unit_.complete(*bias_);
    }
    const at::Tensor& gradient = unit_.gradient(leaf_);
    if (!scratch.fp8 || !scratch.fp8->backward_weight(gradient, dout, x, kept.scales)) linear_backward_weight(gradient, dout, x);
    unit_.complete(leaf_);
  }
  if (!adapter_) return;
  if (adapter_->is_dora()) {
    // The product is recomputed: blocks overwrite their outputs in place, and keeping another copy costs more.
    auto& product = scratch.adapter.product;
    fit(product, dout.sizes(), dout.options());
    ProjectionKept again{.low = {}, .scales = kept.scales, .dora = {}};
    multiply(product, x, weight(scratch), {}, again, dropout, scratch);
    adapter_->backward_magnitude(dout, product, kept.dora);
  }
  adapter_->backward_weight(gained(dout, scratch), x, kept.low, dropout, scratch.adapter);
}

}  // namespace lockstep::model
