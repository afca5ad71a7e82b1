// Each kernel against the same arithmetic in plain ATen, over sizes that fill vectors and sizes that do not.
#include "rank/kernels/kernels.h"
#include "rank/model/parts/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include "support/reference/close.h"

namespace lockstep::kernels {
namespace {

using namespace test;

// Powers of two, a width of one, widths that leave a tail in every vector size, more rows than partial sums.
const std::vector<Shape> kShapes = {{1, 1}, {3, 64}, {16, 384}, {17, 96}, {130, 100}, {5, 37}, {1100, 64}, {4, 2048}, {2, 4104}};

template <typename F>
void over_shapes(F body) {
  test::over_shapes(kShapes, body);
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
    EXPECT_TRUE(at::equal(again, out)) << "recomputed, the output is the same bits";
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
        if (vocab > 7) continue;
        const auto off = shifted(before);
        embedding_backward(tokens, dout, off);
        EXPECT_TRUE(at::equal(off, dweight)) << "memory need not be aligned";
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
                                             {1, 70, 8, 2, 256, true, false},
                                             {1, 9, 6, 3, 128, false, false},
                                             {2, 5, 3, 1, 64, false, true},
                                             {1, 33, 5, 5, 64, true, false},
                                             {2, 7, 4, 2, 16, false, false},
                                             {1, 5, 2, 1, 512, true, false},
                                             {1, 3, 2, 1, 512, false, true},
                                             {1, 11, 32, 8, 128, false, false}})
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
      auto placed = layout;
      placed.positions = at::arange(rows, rotary.cosine.options().dtype(at::kInt)).remainder(c.time);
      const auto by_position = qkv.clone();
      rope_forward(qkv, by_position, placed, rotary, norms);
      EXPECT_TRUE(at::equal(by_position, out)) << "positions may be given";

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
      const auto dqkv_by_position = like(qkv);
      rope_backward(dq, dk, dv, dqkv_by_position, placed, rotary, norms, qkv);
      EXPECT_TRUE(at::equal(dqkv_by_position, dqkv)) << "positions may be given";
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
      << "neighbors are independent";
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

TEST(SumOfRows, AddsUpInF32InTheirOrderAndRoundsOnce) {
  for (const std::int64_t width : {1, 3, 64, 4097, 1 << 18})
    for (const auto type : kTypes)
      for (const auto out_type : kTypes) {
        const auto rows = random({5, width}, 1, type);
        at::Tensor expected = rows[0].to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
        for (int row = 1; row < 5; ++row) expected.add_(rows[row].to(at::kFloat));
        const auto out = at::full({width}, NAN, rows.options().dtype(out_type));
        sum_of_rows(out, rows);
        EXPECT_TRUE(at::equal(out, expected.to(out_type))) << width << " of " << type << " into " << out_type;
      }
}

at::Tensor squares(const std::vector<at::Tensor>& parts) { return sum_of_squares(parts).sum(); }

TEST(SumOfSquares, AnySizeAndType) {
  for (const std::int64_t count : {1, 3, 255, 512, 4097, 1 << 20})
    for (const auto type : kTypes) {
      const auto a = random({count}, 1, type), b = random({count + 5}, 2, type);
      const auto expected = a.to(at::kDouble).pow(2).sum() + b.to(at::kDouble).pow(2).sum();
      const auto sum = squares({a, b});
      EXPECT_EQ(sum.scalar_type(), at::kDouble);
      EXPECT_NEAR(sum.item<double>(), expected.item<double>(), 1e-6 * expected.item<double>()) << count << " of " << type;
      EXPECT_EQ(squares({a, b}).item<double>(), sum.item<double>()) << "the same every time";
    }
}

// Each buffer's by itself: whoever else has some, its sum is the same to the last bit, in blocks of one size.
TEST(SumOfSquares, AreEachBuffersOwn) {
  constexpr std::int64_t block = 1 << 15;
  for (const auto type : kTypes) {
    const auto a = random({5 * block + 77}, 3, type), b = random({100}, 4, type);
    const at::Tensor both = sum_of_squares(std::vector{a, b}), alone = sum_of_squares(std::vector{a});
    EXPECT_EQ(both.sizes(), at::IntArrayRef({2}));
    EXPECT_EQ(both[0].item<double>(), alone.item<double>());
    const at::Tensor blocks = sum_of_squares(std::vector{a.narrow(0, 0, block), a.narrow(0, block, block)});
    EXPECT_EQ(blocks[1].item<double>(), sum_of_squares(std::vector{a.narrow(0, block, block)}).item<double>());
    EXPECT_EQ(sum_of_squares(std::vector{a.narrow(0, 0, 2 * block)}).item<double>(), blocks.sum().item<double>());
  }
}

}  // namespace
}  // namespace lockstep::kernels
