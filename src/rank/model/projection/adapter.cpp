// An adapter's products. Parts of a stacked matrix share one product with their A matrices, and take their own columns for B.
#include "rank/model/projection/adapter.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "rank/kernels/kernels.h"
#include "rank/model/projection/linear.h"

namespace lockstep::model {

using kernels::Into;

Adapter::Adapter(StoredUnit unit, AdaptedMatrix place, const config::LoraConfig& lora, std::uint64_t site)
    : unit_(unit), place_(std::move(place)), dropout_(lora.dropout), dora_(lora.dora), site_(site) {
  const double first = place_.parts.front().scale;
  const auto same = [&](const AdaptedMatrix::Part& part) { return part.scale == first; };
  if (std::all_of(place_.parts.begin(), place_.parts.end(), same)) scale_ = first;
}

const at::Tensor& Adapter::dropped(const at::Tensor& x, const Dropout& dropout, AdapterScratch& scratch) const {
  if (!drops(dropout)) return x;
  fit(scratch.dropped, x.sizes(), x.options());
  kernels::dropout(x, scratch.dropped, dropout.keys, dropout.time, site_, dropout_);
  return scratch.dropped;
}

void Adapter::forward_low(const at::Tensor& x, at::Tensor& low, const Dropout& dropout, AdapterScratch& scratch) const {
  fit(low, {x.size(0), low_width()}, x.options());
  const at::Tensor& input = dropped(x, dropout, scratch);
  if (scale_) return linear(low, input, a(), {}, Into::write, *scale_);
  for (const auto& part : place_.parts) linear(low_of(part, low), input, a_of(part), {}, Into::write, part.scale);
}

void Adapter::forward_out(const at::Tensor& out, const at::Tensor& low) const {
  for (const auto& part : place_.parts) linear(columns_of(part, out), low_of(part, low), b_of(part), {});
  clear_other_columns(out);
}

void Adapter::clear_other_columns(const at::Tensor& out) const {
  std::int64_t next = 0;
  const auto clear_up_to = [&](std::int64_t column) {
    if (column > next) out.narrow(1, next, column - next).zero_();
  };
  for (const auto& part : place_.parts) {
    clear_up_to(part.column);
    next = part.column + part.columns;
  }
  clear_up_to(out.size(1));
}

void Adapter::backward_low(const at::Tensor& dout, AdapterScratch& scratch) const {
  const auto& dlow = fit(scratch.dlow, {dout.size(0), low_width()}, dout.options());
  for (const auto& part : place_.parts)
    linear_backward_input(low_of(part, dlow), columns_of(part, dout), b_of(part), Into::write, part.scale);
}

void Adapter::backward_input(const at::Tensor& dx, const Dropout& dropout, AdapterScratch& scratch) const {
  linear_backward_input(dx, scratch.dlow, a());
  if (drops(dropout)) kernels::dropout(dx, dx, dropout.keys, dropout.time, site_, dropout_);
}

void Adapter::backward_weight(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& low, const Dropout& dropout,
                              AdapterScratch& scratch) const {
  for (std::size_t i = 0; i < place_.parts.size(); ++i) {
    const auto& part = place_.parts[i];
    linear_backward_weight(unit_.gradient(part.b).narrow(0, part.row, part.columns), columns_of(part, dout), low_of(part, low));
    const bool last = i + 1 == place_.parts.size() || place_.parts[i + 1].b != part.b;
    if (last) unit_.complete(part.b);
  }
  linear_backward_weight(unit_.gradient(place_.a), scratch.dlow, dropped(x, dropout, scratch));
  unit_.complete(place_.a);
}

at::Tensor Adapter::row_norms(const at::Tensor& weight) const {
  std::vector<at::Tensor> norms;
  for (const auto& part : place_.parts) {
    const at::Tensor adapted = at::addmm(weight.narrow(0, part.column, part.columns), b_of(part), a_of(part), 1, part.scale);
    norms.push_back(at::linalg_vector_norm(adapted, 2, {1}, false, at::kFloat));
  }
  return at::cat(norms);
}

DoraKept Adapter::gain_over(const at::Tensor& weight) const {
  DoraKept kept{.gain = at::ones({weight.size(0)}, weight.options()), .norms = row_norms(weight)};
  const at::Tensor gains = unit_.weight(place_.magnitude).to(at::kFloat).div(kept.norms);
  std::int64_t row = 0;
  for (const auto& part : place_.parts) {
    kept.gain.narrow(0, part.column, part.columns).copy_(gains.narrow(0, row, part.columns));
    row += part.columns;
  }
  return kept;
}

void Adapter::backward_magnitude(const at::Tensor& dout, const at::Tensor& product, const DoraKept& kept) const {
  std::int64_t row = 0;
  for (const auto& part : place_.parts) {
    const at::Tensor sums = columns_of(part, dout).mul(columns_of(part, product)).sum(0, false, at::kFloat);
    unit_.gradient(place_.magnitude).narrow(0, row, part.columns).add_(sums.div(kept.norms.narrow(0, row, part.columns)));
    row += part.columns;
  }
  unit_.complete(place_.magnitude);
}

void Adapter::reset_magnitude(const at::Tensor& weight) const { unit_.assign(place_.magnitude, row_norms(weight)); }

}  // namespace lockstep::model
