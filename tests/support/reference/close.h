// What tests of kernels share: random tensors on the tested device, and how close a kernel must come to plain ATen.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/reference/test_device.h"

namespace lockstep::test {

struct Shape {
  std::int64_t rows, width;
};

inline const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

inline at::Tensor random(at::IntArrayRef sizes, int seed, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, generator(seed)).to(type).to(device());
}

inline at::Tensor leaf(const at::Tensor& t) { return t.to(at::kFloat).detach().clone().set_requires_grad(true); }

inline at::Tensor f32_zeros_like(const at::Tensor& t) { return at::zeros(t.sizes(), t.options().dtype(at::kFloat)); }

inline at::Tensor like(const at::Tensor& t) { return at::full_like(t, 77); }

// The same numbers in memory that starts one element after an aligned place.
inline at::Tensor shifted(const at::Tensor& t) {
  const auto memory = at::zeros({t.numel() + 1}, t.options());
  return memory.narrow(0, 1, t.numel()).view(t.sizes()).copy_(t);
}

// Half a step of a 16-bit type, relative to the number: what storing it may cost.
inline double half_step(at::ScalarType type) { return type == at::kFloat ? 0x1p-24 : type == at::kHalf ? 0x1p-11 : 0x1p-8; }

// How far numbers may be from those that f32 gives, each by its own size: `roundings` to its type, and what sums in f32 lose, which goes by
// the largest number of the tensor. A small entry is held as tightly as a large one.
struct Within {
  double roundings = 1;
  double sums = 4e-6;
  double relative = 4e-6;  // of each number, beside its rounding: exponentials and roots
  double terms = 0;        // the size of what was added up, where it is larger than every sum
};

inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what, Within within = {}) {
  const auto type = actual.scalar_type();
  const auto want = expected.detach().to(at::kDouble);
  const auto off = (actual.detach().to(at::kDouble) - want).abs();
  const double size = std::max(want.abs().max().item<double>(), within.terms);
  const double least = type == at::kHalf ? 0x1p-25 : 0;  // half of f16's smallest step
  const auto allowed =
      want.abs() * (within.roundings * half_step(type) * 1.001 + within.relative) + (within.sums * size + within.roundings * least + 1e-12);
  const auto excess = (off - allowed).reshape({-1});
  const auto worst = excess.argmax().item<std::int64_t>();
  EXPECT_LE(excess[worst].item<double>(), 0) << what << ", type " << type << ": entry " << worst << " of " << excess.numel() << " is "
                                             << actual.detach().to(at::kDouble).reshape({-1})[worst].item<double>() << ", not "
                                             << want.reshape({-1})[worst].item<double>() << "; largest " << size;
}

inline at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

template <typename F>
void over_shapes(const std::vector<Shape>& shapes, F body) {
  for (const auto& shape : shapes)
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      body(shape, type);
    }
}

}  // namespace lockstep::test
