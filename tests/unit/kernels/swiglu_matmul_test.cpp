// SwiGLU together with the matmul beside it, against the same arithmetic in plain ATen, over sizes that fill tiles and sizes that do not.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/silu.h>

#include "rank/kernels/kernels.h"
#include "support/reference/close.h"

namespace lockstep::kernels {
namespace {

using namespace test;

struct Shape {
  std::int64_t rows, width, inner, rank;
};

// One tile; a few; sides that leave a rest in every direction; more tiles than processors; ranks that fill a step, half of one, and two.
const std::vector<Shape> kShapes = {{128, 64, 64, 0},      {1, 8, 8, 0},        {256, 128, 128, 0},  {300, 328, 200, 0},
                                    {300, 328, 200, 8},    {257, 72, 136, 16},  {256, 512, 512, 64}, {512, 256, 1024, 40},
                                    {2304, 1160, 392, 16}, {4096, 2048, 256, 0}};

at::Tensor f32(const at::Tensor& t) { return t.to(at::kFloat); }
at::Tensor bf16(at::IntArrayRef sizes, int seed, double scale = 1) { return (random(sizes, seed) * scale).to(at::kBFloat16); }

constexpr Within in_tensor_cores{.sums = 2e-5};  // which cut off what they add below the largest term's last places

template <typename F>
void over_cases(F body) {
  if (!fuses_swiglu(bf16({1, 16}, 0), 8, 8)) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  for (const Shape& c : kShapes) {
    SCOPED_TRACE(fmt::format("{} rows, width {}, inner {}, rank {}", c.rows, c.width, c.inner, c.rank));
    body(c);
  }
}

TEST(SwigluMatmul, Forward) {
  over_cases([](const Shape& c) {
    const auto [rows, width, inner, rank] = c;
    const auto x = bf16({rows, inner}, 1), weight = bf16({2 * width, inner}, 2, 1 / std::sqrt(double(inner)));
    const ThinProduct thin = rank == 0 ? ThinProduct{} : ThinProduct{bf16({rows, 2 * rank}, 3), bf16({2 * width, rank}, 4, 0.2)};
    const auto gate_up = at::full_like(bf16({rows, 2 * width}, 5), NAN), out = at::full_like(bf16({rows, width}, 6), NAN);
    gate_up_swiglu(gate_up, out, x, weight, thin);

    auto expected = at::matmul(f32(x), f32(weight).t());
    if (rank > 0) {
      const auto low = f32(thin.low).chunk(2, 1), b = f32(thin.weight).chunk(2, 0);
      expected = expected + at::cat({at::matmul(low[0], b[0].t()), at::matmul(low[1], b[1].t())}, 1);
    }
    expect_close(gate_up, expected, "gate_up", in_tensor_cores);
    const auto alone = like(out);
    swiglu_forward(gate_up, alone);
    EXPECT_TRUE(at::equal(out, alone)) << "SwiGLU of what was stored, the same bits as by itself";
  });
}

TEST(SwigluMatmul, Backward) {
  over_cases([](const Shape& c) {
    const auto [rows, width, inner, rank] = c;
    const auto dout = bf16({rows, inner}, 1), weight = bf16({inner, width}, 2, 1 / std::sqrt(double(inner))),
               gate_up = bf16({rows, 2 * width}, 3);
    const ThinProduct thin = rank == 0 ? ThinProduct{} : ThinProduct{bf16({rows, rank}, 4), bf16({rank, width}, 5, 0.2)};
    const auto gradient = gate_up.clone(), with_output = gate_up.clone(), again = at::full_like(bf16({rows, width}, 6), NAN);
    down_backward_swiglu(gradient, {}, dout, weight, thin);
    down_backward_swiglu(with_output, again, dout, weight, thin);

    auto d = at::matmul(f32(dout), f32(weight));
    if (rank > 0) d = d + at::matmul(f32(thin.low), f32(thin.weight));
    const auto plain = leaf(gate_up);
    const auto halves = plain.chunk(2, 1);
    (at::silu(halves[0]) * halves[1]).backward(d);
    expect_close(gradient, plain.grad(), "dgate_up", in_tensor_cores);
    EXPECT_TRUE(at::equal(with_output, gradient)) << "the same whether the output is wanted or not";
    const auto alone = like(again);
    swiglu_forward(gate_up, alone);
    EXPECT_TRUE(at::equal(again, alone)) << "recomputed, the output is the same bits";
  });
}

}  // namespace
}  // namespace lockstep::kernels
