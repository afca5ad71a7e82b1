// What tests of kernels share: random tensors on the tested device, and how close a kernel must come to plain ATen.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

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

// f32 agrees to 1e-5 of the largest number, 16-bit types to their last places.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what, double factor = 1) {
  const auto type = actual.scalar_type();
  const double relative = (type == at::kFloat ? 1e-5 : type == at::kHalf ? 2e-3 : 1.6e-2) * factor;
  const auto want = expected.detach().to(at::kFloat);
  const double size = want.abs().max().item<double>();
  const double off = (actual.detach().to(at::kFloat) - want).abs().max().item<double>();
  EXPECT_LE(off, relative * size + 1e-7) << what << ", type " << type << ", largest " << size;
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
