// Where units are whole a matrix after the other; where they are cut, a unit after the other, in the same order on every rank.
#include "rank/optim/by_matrix.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <span>

#include "layout/spread/placement.h"
#include "rank/kernels/kernels.h"

namespace lockstep::optim {

void ByMatrix::find_parameters(config::Optimizer method) {
  for (std::size_t i = 0; i < slices().size(); ++i) {
    begins_.push_back(parameters_.size());
    const model::HeldSlice& slice = slices()[i];
    for (const HeldPiece& held : held_pieces(slice)) {
      const bool whole = layout::updates_whole(method, *held.leaf, *held.piece);
      parameters_.push_back({i, held, whole, whole && store().owns(slice.unit, held.in_unit)});
    }
  }
  begins_.push_back(parameters_.size());
}

void ByMatrix::update(std::size_t slice, double learning_rate) {
  const std::size_t first = begins_[slice], last = begins_[slice + 1];
  const bool some_whole = std::ranges::any_of(std::span(parameters_).subspan(first, last - first), &Parameter::whole);
  if (some_whole && !store().cuts(slices()[slice].unit).empty()) return update_together(first, last, learning_rate);
  for (std::size_t p = first; p < last; ++p) {
    if (parameters_[p].held.count == 0) continue;  // all of the unit is another rank's
    parameters_[p].whole ? update_here(p, learning_rate) : update_other(p, learning_rate);
  }
}

model::NamedSlice ByMatrix::named_whole(std::string_view state, const Parameter& p, const at::Tensor& numbers,
                                        const std::vector<std::int64_t>& shape) {
  return {fmt::format("{}.{}", state, p.held.piece->name), p.owned ? numbers.view(shape) : numbers, shape, 0};
}

void ByMatrix::update_here(std::size_t parameter, double learning_rate) {
  const Parameter& p = parameters_[parameter];
  const at::Tensor gradient = slices()[p.slice].gradients.narrow(0, p.held.begin, p.held.count);
  direct(parameter, gradient, [&](std::int64_t begin, const at::Tensor& numbers) { take_off(p, begin, numbers, learning_rate); });
}

void ByMatrix::update_together(std::size_t first, std::size_t last, double learning_rate) {
  const model::HeldSlice& slice = slices()[parameters_[first].slice];
  at::Tensor gradients = store().whole_gradients(slice.unit);
  const at::Tensor directions = at::zeros_like(gradients, at::TensorOptions().dtype(at::kFloat));
  for (std::size_t i = first; i < last; ++i) {
    const Parameter& p = parameters_[i];
    if (!p.whole || !p.owned) continue;
    direct(i, gradients.narrow(0, p.held.in_unit, p.held.piece->elements()), [&](std::int64_t begin, const at::Tensor& numbers) {
      directions.narrow(0, p.held.in_unit + begin, numbers.numel()).copy_(numbers);
    });
  }
  gradients = at::Tensor();  // what comes next takes as much
  const at::Tensor mine = store().own_share(slice.unit, directions);
  for (std::size_t i = first; i < last; ++i) {
    const Parameter& p = parameters_[i];
    if (!p.whole) {
      update_other(i, learning_rate);
      continue;
    }
    if (p.held.count == 0) continue;
    take_off(p, 0, mine.narrow(0, p.held.begin, p.held.count), learning_rate);
    slice.gradients.narrow(0, p.held.begin, p.held.count).zero_();
  }
}

// begin: in what is held of the parameter.
void ByMatrix::take_off(const Parameter& p, std::int64_t begin, const at::Tensor& numbers, double learning_rate) const {
  const model::HeldSlice& slice = slices()[p.slice];
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, p.held.begin + begin, numbers.numel()); };
  const Taken how = taken(p);
  kernels::update({.gradient = numbers, .exact = part(slice.exact), .weights = part(slice.weights), .first = {}, .second = {}}, control(),
                  {.rule = kernels::Rule::apply,
                   .rate = learning_rate * how.rate,
                   .decay = how.decay,
                   .key = key_of(slice),
                   .place = slice.begin + p.held.begin + begin,
                   .zero_gradient = false});
}

}  // namespace lockstep::optim
