// Each kernel against the same arithmetic in plain ATen, over sizes that fill vectors and sizes that do not.
#include "rank/kernels/kernels.h"
#include "rank/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/core/Reduction.h>
#include <gtest/gtest.h>

#include "support/reference/test_device.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  std::int64_t rows, width;
};

// Powers of two, a width of one, widths that leave a tail in every vector size, more rows than partial sums.
const std::vector<Shape> kShapes = {{1, 1}, {3, 64}, {16, 384}, {17, 96}, {130, 100}, {5, 37}, {1100, 64}, {4, 2048}, {2, 4104}};
const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

at::Tensor random(at::IntArrayRef sizes, int seed, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, test::generator(seed)).to(type).to(test::device());
}

at::Tensor leaf(const at::Tensor& t) { return t.to(at::kFloat).detach().clone().set_requires_grad(true); }

at::Tensor f32_zeros_like(const at::Tensor& t) { return at::zeros(t.sizes(), t.options().dtype(at::kFloat)); }

at::Tensor like(const at::Tensor& t) { return at::full_like(t, 77); }

// f32 agrees to 1e-5 of the largest number, 16-bit types to their last places.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what, double factor = 1) {
  const auto type = actual.scalar_type();
  const double relative = (type == at::kFloat ? 1e-5 : type == at::kHalf ? 2e-3 : 1.6e-2) * factor;
  const auto want = expected.detach().to(at::kFloat);
  const double size = want.abs().max().item<double>();
  const double off = (actual.detach().to(at::kFloat) - want).abs().max().item<double>();
  EXPECT_LE(off, relative * size + 1e-7) << what << ", type " << type << ", largest " << size;
}

template <typename F>
void over_shapes(F body) {
  for (const auto& shape : kShapes)
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      body(shape, type);
    }
}

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

TEST(RmsNorm, ForwardAddsTheResidual) {
  over_shapes([](const Shape& s, at::ScalarType type) {
    const auto residual = random({s.rows, s.width}, 1, type), delta = random({s.rows, s.width}, 2, type),
               weight = random({s.width}, 3, type);
    const auto x = like(residual), out = like(residual), rstd = random({s.rows}, 4);
    rms_norm_forward(residual, delta, weight, 1e-5, x, out, rstd);
    const auto sum = residual.to(at::kFloat) + delta.to(at::kFloat);
    expect_close(x, sum, "x");
    expect_close(out, plain_norm(x.to(at::kFloat), weight.to(at::kFloat), 1e-5), "out");
    expect_close(rstd, at::rsqrt(x.to(at::kFloat).pow(2).mean(-1) + 1e-5), "rstd");

    const auto again = like(out);
    rms_norm_apply(x, weight, rstd, again);
    EXPECT_TRUE(at::equal(again, out)) << "made again, a norm is the same bits";
  });
}

TEST(RmsNorm, ForwardWithoutDelta) {
  over_shapes([](const Shape& s, at::ScalarType type) {
    const auto x = random({s.rows, s.width}, 1, type), weight = random({s.width}, 3, type);
    const auto out = like(x), rstd = random({s.rows}, 4);
    rms_norm_forward(x, {}, weight, 1e-6, {}, out, rstd);
    expect_close(out, plain_norm(x.to(at::kFloat), weight.to(at::kFloat), 1e-6), "out");
  });
}

TEST(RmsNorm, Backward) {
  over_shapes([](const Shape& s, at::ScalarType type) {
    for (const auto into : {Into::write, Into::add})
      for (const auto gradient_type : {at::kFloat, type}) {
        const auto x = random({s.rows, s.width}, 1, type), weight = random({s.width}, 2, type), dout = random({s.rows, s.width}, 3, type);
        const auto rstd = at::rsqrt(x.to(at::kFloat).pow(2).mean(-1) + 1e-5);
        const auto dx = random({s.rows, s.width}, 4, type), before = dx.clone();
        const auto dweight = random({s.width}, 5, gradient_type), dweight_before = dweight.clone();
        rms_norm_backward(dout, x, weight, rstd, dx, into, dweight);
        const auto px = leaf(x), pw = leaf(weight);
        plain_norm(px, pw, 1e-5).backward(dout.to(at::kFloat));
        expect_close(dx, into == Into::add ? before.to(at::kFloat) + px.grad() : px.grad(), "dx");
        expect_close(dweight, dweight_before.to(at::kFloat) + pw.grad(), "dweight");
      }
  });
}

TEST(Swiglu, ForwardAndBackward) {
  over_shapes([](const Shape& s, at::ScalarType type) {
    const auto gate_up = random({s.rows, 2 * s.width}, 1, type), dout = random({s.rows, s.width}, 2, type);
    const auto out = like(dout);
    swiglu_forward(gate_up, out);
    const auto plain = leaf(gate_up);
    const auto halves = plain.chunk(2, 1);
    const auto expected = at::silu(halves[0]) * halves[1];
    expected.backward(dout.to(at::kFloat));
    expect_close(out, expected, "out");

    const auto apart = like(gate_up), again = like(out), in_place = gate_up.clone();
    swiglu_backward(gate_up, dout, apart, again);
    expect_close(apart, plain.grad(), "dgate_up");
    EXPECT_TRUE(at::equal(again, out)) << "made again, the output is the same bits";
    swiglu_backward(in_place, dout, in_place, {});
    EXPECT_TRUE(at::equal(in_place, apart)) << "in place is the same";
  });
}

TEST(Bias, Backward) {
  over_shapes([](const Shape& s, at::ScalarType type) {
    const auto dout = random({s.rows, s.width}, 1, type), dbias = random({s.width}, 2), before = dbias.clone();
    bias_backward(dout, dbias);
    expect_close(dbias, before + dout.to(at::kFloat).sum(0), "dbias");
  });
}

TEST(Embedding, ForwardAndBackward) {
  over_shapes([](const Shape& s, at::ScalarType type) {
    for (const auto gradient_type : {at::kFloat, type})
      for (const std::int64_t vocab : {1, 7, 1000}) {
        const auto weight = random({vocab, s.width}, 1, type);
        const auto tokens = at::randint(0, vocab, {s.rows}, test::generator(5), at::kLong).to(test::device());
        const auto out = at::empty({s.rows, s.width}, weight.options());
        embedding_forward(tokens, weight, out);
        EXPECT_TRUE(at::equal(out, at::embedding(weight, tokens)));

        const auto dout = random({s.rows, s.width}, 2, type), dweight = random({vocab, s.width}, 3, gradient_type),
                   before = dweight.clone();
        embedding_backward(tokens, dout, dweight);
        const auto plain = leaf(weight);
        at::embedding(plain, tokens).backward(dout.to(at::kFloat));
        expect_close(dweight, before.to(at::kFloat) + plain.grad(), "dweight");
        const auto second = before.clone();
        embedding_backward(tokens, dout, second);
        EXPECT_TRUE(at::equal(second, dweight)) << "the same every time";
      }
  });
}

TEST(Embedding, BackwardOfTokensThatFillTheBatch) {
  // Runs of equal tokens that end before, at and after the places where a kernel may cut its work, and one that is everything.
  const std::int64_t s = kEmbeddingStretch;
  for (const auto& runs : std::vector<std::vector<std::int64_t>>{
           {s}, {s + 1}, {s - 1, 2}, {s, s}, {1, 2 * s - 1}, {3, 5 * s, 7}, {s / 2, s / 2, 1}, {10 * s + 5}, {1, s - 1, s, 2 * s + 1, 1}})
    for (const auto type : kTypes)
      for (const auto gradient_type : {at::kFloat, type}) {
        const std::int64_t width = 72, vocab = 50;
        std::vector<std::int64_t> list;
        for (std::size_t run = 0; run < runs.size(); ++run) list.insert(list.end(), std::size_t(runs[run]), std::int64_t(7 * run % vocab));
        const auto rows = std::int64_t(list.size());
        const auto shuffled = at::randperm(rows, test::generator(3), at::kLong);
        const auto tokens = at::tensor(list).index_select(0, shuffled).to(test::device());
        const auto dout = random({rows, width}, 1, type), dweight = random({vocab, width}, 2, gradient_type), before = dweight.clone();
        embedding_backward(tokens, dout, dweight);
        const auto expected = f32_zeros_like(before).index_add(0, tokens, dout.to(at::kFloat)) + before.to(at::kFloat);
        expect_close(dweight, expected, fmt::format("dweight of {} runs, {} rows", runs.size(), rows));
      }
}

TEST(Embedding, RefusesTokensOutsideTheVocabularyOnCpu) {
  if (!test::device().is_cpu()) GTEST_SKIP() << "on CUDA tokens are checked before they are copied there";
  const auto weight = random({10, 8}, 1), out = at::empty({2, 8});
  for (const std::int64_t bad : {std::int64_t(10), std::int64_t(-1)}) {
    const auto tokens = at::full({2}, bad, at::kLong);
    EXPECT_THROW(embedding_forward(tokens, weight, out), std::exception);
  }
}

TEST(CrossEntropy, LossAndGradient) {
  for (const auto& shape : std::vector<Shape>{{1, 2}, {4, 96}, {9, 101}, {3, 32000}, {2, 50257}})
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      const auto logits = random({shape.rows, shape.width}, 1, type) * 4;
      auto targets = at::randint(0, shape.width, {shape.rows}, test::generator(2), at::kLong);
      if (shape.rows > 2) targets[1].fill_(-100);
      targets = targets.to(test::device());
      const auto scale = at::full({}, 0.25, at::TensorOptions().dtype(at::kFloat)).to(test::device());
      const auto losses = random({shape.rows}, 3), gradient = logits.clone(), plain = leaf(logits);
      const auto expected = at::cross_entropy_loss(plain, targets, {}, at::Reduction::None, -100);
      (expected.sum() * 0.25).backward();
      cross_entropy(logits, targets, losses, {});
      expect_close(losses, expected, "losses alone");
      losses.fill_(-1);
      cross_entropy(gradient, targets, losses, scale);
      expect_close(losses, expected, "losses");
      expect_close(gradient, plain.grad(), "gradient");
      if (shape.rows > 2) {
        EXPECT_EQ(gradient[1].abs().max().item<double>(), 0) << "an ignored row has no gradient";
      }
    }
}

TEST(CrossEntropy, ATokenIsCorrectWhereItIsTheFirstOfTheLikeliest) {
  for (const auto& shape : std::vector<Shape>{{64, 7}, {64, 96}, {64, 101}, {8, 32000}})
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      const auto logits = (random({shape.rows, shape.width}, 1, type) * 2).round();  // many ties
      const auto likeliest = logits.to(at::kFloat).cpu().argmax(1);
      auto targets = likeliest.clone();
      const auto top = std::get<0>(logits.to(at::kFloat).cpu().max(1));
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        if (row % 4 == 1) targets[row].fill_(-100);
        if (row % 4 == 2) targets[row] = logits[row].to(at::kFloat).cpu().eq(top[row]).nonzero()[-1][0];  // the last of the likeliest
        if (row % 4 == 3) targets[row].fill_((likeliest[row].item<std::int64_t>() + 1) % shape.width);
      }
      const auto losses = random({shape.rows}, 3), correct = random({shape.rows}, 4);
      cross_entropy(logits, targets.to(test::device()), losses, {}, correct);
      EXPECT_TRUE(correct.cpu().equal(targets.eq(likeliest).to(at::kFloat)));
    }
}

TEST(CrossEntropy, WhatIsNotFiniteStaysNotFinite) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    const auto logits = random({2, 64}, 1), losses = random({2}, 2);
    logits[1][3].fill_(bad);
    const auto targets = at::zeros({2}, logits.options().dtype(at::kLong));
    cross_entropy(logits, targets, losses, {});
    EXPECT_TRUE(std::isfinite(losses[0].item<float>()));
    EXPECT_FALSE(std::isfinite(losses[1].item<float>()));
  }
}

struct RopeCase {
  std::int64_t batch, time, heads, kv_heads, head_dim;
  bool norms, repeated;
};

// x: [batch, heads, time, head_dim] f32
at::Tensor plain_rope(const at::Tensor& x, const RotaryTable& rotary) {
  const auto halves = x.chunk(2, -1);
  const auto c = rotary.cosine.narrow(0, 0, x.size(2)), s = rotary.sine.narrow(0, 0, x.size(2));
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

TEST(Rope, ForwardAndBackward) {
  for (const auto& c : std::vector<RopeCase>{{2, 8, 4, 4, 64, false, false},
                                             {2, 5, 6, 2, 64, false, true},
                                             {1, 7, 3, 1, 20, false, false},
                                             {2, 9, 4, 2, 128, true, false},
                                             {3, 33, 4, 2, 64, true, true},
                                             {1, 3, 2, 1, 6, true, false},
                                             {1, 70, 8, 2, 256, true, false}})
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {} heads of {}, {}{}", c.batch, c.time, c.heads, c.head_dim, c10::toString(type),
                               c.norms ? ", norms" : ""));
      const auto rows = c.batch * c.time, width = (c.heads + 2 * c.kv_heads) * c.head_dim;
      const auto qkv = random({rows, width}, 1, type);
      const auto rotary = rotary_table(c.time + 3, model::inverse_frequencies(c.head_dim, 10000), test::device());
      const HeadLayout layout{c.time, c.heads, c.kv_heads, c.head_dim};
      HeadNorms norms{.q = {}, .k = {}, .dq = {}, .dk = {}, .eps = 1e-5};
      if (c.norms) {
        norms.q = random({c.head_dim}, 2, type);
        norms.k = random({c.head_dim}, 3, type);
        norms.dq = random({c.head_dim}, 4);
        norms.dk = random({c.head_dim}, 5);
      }
      const auto dq_before = c.norms ? norms.dq.clone() : at::Tensor(), dk_before = c.norms ? norms.dk.clone() : at::Tensor();

      const auto heads_of = [&](const at::Tensor& packed, std::int64_t first, std::int64_t count) {
        return packed.view({c.batch, c.time, c.heads + 2 * c.kv_heads, c.head_dim}).narrow(2, first, count).transpose(1, 2);
      };
      const auto plain = leaf(qkv);
      const auto pq = c.norms ? leaf(norms.q) : at::Tensor(), pk = c.norms ? leaf(norms.k) : at::Tensor();
      auto q = heads_of(plain, 0, c.heads), k = heads_of(plain, c.heads, c.kv_heads);
      const auto v = heads_of(plain, c.heads + c.kv_heads, c.kv_heads);
      if (c.norms) {
        q = plain_norm(q, pq, 1e-5);
        k = plain_norm(k, pk, 1e-5);
      }
      q = plain_rope(q, rotary);
      k = plain_rope(k, rotary);

      const auto out = qkv.clone();
      rope_forward(qkv, out, layout, rotary, norms);
      expect_close(heads_of(out, 0, c.heads), q, "q");
      expect_close(heads_of(out, c.heads, c.kv_heads), k, "k");
      EXPECT_TRUE(at::equal(heads_of(out, c.heads + c.kv_heads, c.kv_heads), heads_of(qkv, c.heads + c.kv_heads, c.kv_heads))) << "v stays";
      const auto in_place = qkv.clone();
      rope_forward(in_place, in_place, layout, rotary, norms);
      EXPECT_TRUE(at::equal(in_place, out)) << "in place is the same";

      const auto repeat = c.repeated ? c.heads / c.kv_heads : 1;
      const auto dq = random({c.batch, c.heads, c.time, c.head_dim}, 6, type);
      // As attention leaves them: one with time before heads in memory.
      const auto dk = random({c.batch, c.time, c.kv_heads * repeat, c.head_dim}, 7, type).transpose(1, 2);
      const auto dv = random({c.batch, c.kv_heads * repeat, c.time, c.head_dim}, 8, type);
      const auto summed = [&](const at::Tensor& d) {
        return d.to(at::kFloat).reshape({c.batch, c.kv_heads, repeat, c.time, c.head_dim}).sum(2);
      };
      ((q * dq.to(at::kFloat)).sum() + (k * summed(dk)).sum() + (v * summed(dv)).sum()).backward();
      const auto dqkv = like(qkv);
      rope_backward(dq, dk, dv, dqkv, layout, rotary, norms, qkv);
      expect_close(dqkv, plain.grad(), "dqkv");
      if (c.norms) {
        expect_close(norms.dq, dq_before + pq.grad(), "dq_norm");
        expect_close(norms.dk, dk_before + pk.grad(), "dk_norm");
      }
    }
}

TEST(RandomNormal, DependsOnKeyAndIndexAlone) {
  const auto whole = at::empty({1000}, at::TensorOptions().device(test::device()).dtype(at::kFloat)), other = like(whole);
  random_normal(whole, 42, 1);
  for (const std::int64_t first : {1, 2, 3, 64, 517}) {
    const auto part = at::empty({100}, whole.options());
    random_normal(part, 42, 1, first);
    EXPECT_TRUE(at::equal(part, whole.narrow(0, first, 100))) << first;
  }
  random_normal(other, 43, 1);
  EXPECT_FALSE(at::equal(other, whole));
}

TEST(RandomNormal, IsNormal) {
  const auto x = at::empty({1 << 20}, at::TensorOptions().device(test::device()).dtype(at::kFloat));
  random_normal(x, 7, 2);
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(x.pow(2).mean().item<double>(), 4, 0.02);
  EXPECT_NEAR((x / 2).pow(4).mean().item<double>(), 3, 0.05);
  EXPECT_NEAR((x.abs() < 2).to(at::kFloat).mean().item<double>(), 0.6827, 0.003);
  EXPECT_NEAR((x > 0).to(at::kFloat).mean().item<double>(), 0.5, 0.003);
  EXPECT_GT(x.abs().max().item<double>(), 8.5);
  EXPECT_NEAR((x.narrow(0, 0, (1 << 20) - 1) * x.narrow(0, 1, (1 << 20) - 1)).mean().item<double>(), 0, 0.02)
      << "neighbours are independent";
}

TEST(RandomNormal, TheSameBitsOnEveryDevice) {
  // Written down once: a change of arithmetic on any device shows here.
  const auto x = at::empty({1 << 16}, at::TensorOptions().device(test::device()).dtype(at::kFloat));
  random_normal(x, 0x123456789abcdefull, 0.02);
  const auto host = x.to(at::kCPU);
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto* bytes = static_cast<const unsigned char*>(host.const_data_ptr());
  for (std::size_t i = 0; i < host.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  EXPECT_EQ(hash, 6062753108488994732ull) << "hash of 65536 numbers";
}

TEST(SumOfSquares, AnySizeAndType) {
  for (const std::int64_t count : {1, 3, 255, 512, 4097, 1 << 20})
    for (const auto type : kTypes) {
      const auto a = random({count}, 1, type), b = random({count + 5}, 2, type);
      const auto expected = a.to(at::kDouble).pow(2).sum() + b.to(at::kDouble).pow(2).sum();
      const auto sum = sum_of_squares({a, b});
      EXPECT_EQ(sum.scalar_type(), at::kDouble);
      EXPECT_NEAR(sum.item<double>(), expected.item<double>(), 1e-6 * expected.item<double>()) << count << " of " << type;
      EXPECT_EQ(sum_of_squares({a, b}).item<double>(), sum.item<double>()) << "the same every time";
    }
}

}  // namespace
}  // namespace lockstep::kernels
