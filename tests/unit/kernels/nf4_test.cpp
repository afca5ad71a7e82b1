// Blockwise quantization against the rules written out slowly, element by element. On CUDA the same cases prove that it gives a CPU's bits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rank/kernels/kernels.h"
#include "support/reference/test_device.h"

namespace lockstep::kernels {
namespace {

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf};
// One weight, an odd few, whole blocks, a short last block, an odd last block, more than one block of scales, more than a launch's round;
// eights that leave a warp or a round of it half empty.
const std::vector<std::int64_t> kCounts = {
    1, 2, 7, 63, 64, 65, 127, 128, 1048, 4096, 4100, 64 * 256, 64 * 257 + 33, 64 * 300 + 8, 64 * 1030 + 2};

constexpr double kLevels[16] = {-1.0,
                                -0.6961928009986877,
                                -0.5250730514526367,
                                -0.39491748809814453,
                                -0.28444138169288635,
                                -0.18477343022823334,
                                -0.09105003625154495,
                                0.0,
                                0.07958029955625534,
                                0.16093020141124725,
                                0.24611230194568634,
                                0.33791524171829224,
                                0.44070982933044434,
                                0.5626170039176941,
                                0.7229568362236023,
                                1.0};

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

at::Tensor numbers(std::int64_t count, int seed, at::ScalarType type) {
  return at::randn({count}, test::generator(seed)).mul_(0.02).to(type);
}

struct Quantized {
  at::Tensor codes, scales;  // on the host
};

Quantized quantized(const at::Tensor& values, Codes kind, const at::Device& device = test::device()) {
  const auto options = at::TensorOptions().device(device);
  // Filled with what no code is, so that a byte that is not written shows.
  const auto codes = at::full({code_bytes(kind, values.numel())}, 0xEE, options.dtype(at::kByte));
  const auto scales = at::full({blocks_of(values.numel(), kWeightBlock)}, -5, options.dtype(at::kFloat));
  quantize_blocks(values.to(device), kind, codes, scales);
  return {codes.cpu(), scales.cpu()};
}

// The nearest level, found the slow way; a tie takes the lower.
int slow_nf4_code(float value) {
  int best = 0;
  for (int i = 0; i < 15; ++i) {
    const float middle = (float(kLevels[i]) + float(kLevels[i + 1])) / 2;
    if (value > middle) best = i + 1;
  }
  return best;
}

Quantized slow_nf4(const at::Tensor& values) {
  const auto x = values.to(at::kFloat);
  const auto count = x.numel();
  Quantized out{at::zeros({(count + 1) / 2}, at::kByte), at::zeros({blocks_of(count, 64)}, at::kFloat)};
  for (std::int64_t first = 0; first < count; first += 64) {
    const auto block = x.narrow(0, first, std::min<std::int64_t>(64, count - first));
    const bool whole = block.numel() == 64;
    const float most = block.abs().max().item<float>(), divisor = std::max(most, 1e-38f);
    out.scales[first / 64] = whole ? most : divisor;
    for (std::int64_t i = 0; i < block.numel() + block.numel() % 2; ++i) {
      float value = 0;
      if (i < block.numel()) {
        const float element = block[i].item<float>();
        value = std::clamp(whole ? element * (1.0f / divisor) : element / divisor, -1.0f, 1.0f);
      }
      auto* byte = out.codes.mutable_data_ptr<std::uint8_t>() + (first + i) / 2;
      *byte = std::uint8_t(*byte | (slow_nf4_code(value) << (i % 2 == 0 ? 4 : 0)));
    }
  }
  return out;
}

TEST(Nf4, CodesAreTheNearestLevels) {
  for (const auto type : kTypes)
    for (const auto count : {1, 2, 7, 63, 64, 65, 127, 128, 4100}) {
      SCOPED_TRACE(fmt::format("{} of {}", count, c10::toString(type)));
      const auto values = numbers(count, count, type);
      const auto ours = quantized(values, Codes::nf4), slow = slow_nf4(values);
      EXPECT_TRUE(at::equal(ours.codes, slow.codes));
      EXPECT_TRUE(at::equal(ours.scales, slow.scales));
    }
}

TEST(Nf4, TiesTakeTheLowerCode) {
  at::Tensor values = at::zeros({64});
  for (int i = 0; i < 15; ++i) {
    const float middle = (float(kLevels[i]) + float(kLevels[i + 1])) / 2;
    values[3 * i] = middle;
    values[3 * i + 1] = std::nextafter(middle, 2.0f);
    values[3 * i + 2] = std::nextafter(middle, -2.0f);
  }
  values[63] = 1;
  const auto codes = quantized(values, Codes::nf4).codes;
  const auto code = [&](int i) { return codes[i / 2].item<int>() >> (i % 2 == 0 ? 4 : 0) & 15; };
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(code(3 * i), i) << "on the bound";
    EXPECT_EQ(code(3 * i + 1), i + 1) << "just above";
    EXPECT_EQ(code(3 * i + 2), i) << "just below";
  }
}

TEST(Nf4, BlocksOfZerosAndOfTinyNumbersStayWhatTheyAre) {
  for (const auto kind : {Codes::nf4, Codes::int8}) {
    const auto zeros = quantized(at::zeros({96}), kind);
    EXPECT_EQ(zeros.scales[0].item<float>(), 0);
    const auto out = at::full({96}, 7, at::TensorOptions().device(test::device()).dtype(at::kFloat));
    const QuantizedBlocks blocks{.codes = zeros.codes.to(test::device()), .scales = zeros.scales.to(test::device())};
    const std::int64_t count = 96;
    dequantize(std::span(&blocks, 1), std::span(&count, 1), kind, out);
    EXPECT_EQ(out.cpu().abs().max().item<float>(), 0) << "also the short last block";
  }
  const auto tiny = at::full({64}, 1e-41f);
  EXPECT_TRUE(at::equal(quantized(tiny, Codes::nf4).codes, slow_nf4(tiny).codes));
}

at::Tensor dense(const QuantizedBlocks& blocks, std::int64_t count, Codes kind, at::ScalarType type) {
  const auto out = at::full({count}, 99, at::TensorOptions().device(test::device()).dtype(type));
  dequantize(std::span(&blocks, 1), std::span(&count, 1), kind, out);
  return out.cpu();
}

QuantizedBlocks on_device(const Quantized& q) { return {.codes = q.codes.to(test::device()), .scales = q.scales.to(test::device())}; }

TEST(Nf4, DenseAgainIsLevelTimesScale) {
  for (const auto type : kTypes)
    for (const auto count : {1, 7, 64, 65, 4100}) {
      const auto q = quantized(numbers(count, 3, at::kFloat), Codes::nf4);
      at::Tensor expected = at::empty({count});
      for (std::int64_t i = 0; i < count; ++i) {
        const int code = q.codes[i / 2].item<int>() >> (i % 2 == 0 ? 4 : 0) & 15;
        expected[i] = float(kLevels[code]) * q.scales[i / 64].item<float>();
      }
      EXPECT_TRUE(at::equal(dense(on_device(q), count, Codes::nf4, type), expected.to(type))) << count << " " << type;
    }
}

TEST(Nf4, ErrorStaysBelowHalfTheWidestGap) {
  const auto values = numbers(1 << 16, 5, at::kFloat);
  const auto back = dense(on_device(quantized(values, Codes::nf4)), values.numel(), Codes::nf4, at::kFloat);
  const auto most = values.view({-1, 64}).abs().amax(1, true);
  const auto off = ((values - back).view({-1, 64}).abs() / most).max().item<double>();
  EXPECT_LE(off, (1.0 - 0.6961928009986877) / 2 + 1e-6);
  EXPECT_LE((values - back).norm().item<double>() / values.norm().item<double>(), 0.10);
}

TEST(Int8, ErrorStaysBelowHalfAStep) {
  for (const auto type : kTypes)
    for (const auto count : kCounts) {
      const auto values = numbers(count, 6, type);
      const auto q = quantized(values, Codes::int8);
      const auto back = dense(on_device(q), count, Codes::int8, at::kFloat);
      const auto steps = q.scales.repeat_interleave(64).narrow(0, 0, count);
      const auto off = ((values.to(at::kFloat) - back).abs() / steps).max().item<double>();
      EXPECT_LE(off, 0.5 + 1e-4) << count << " " << type;
      EXPECT_EQ(q.codes.view(at::kChar).abs().max().item<int>(), 127) << "the largest of a block takes the last step";
    }
}

struct Nested {
  QuantizedBlocks blocks;
  at::Tensor exact;
};

Nested nested_scales(std::int64_t blocks, double offset) {
  const auto device = test::device();
  const auto exact = at::randn({blocks}, test::generator(11)).abs_().mul_(0.01).add_(0.03).to(device);
  const auto bytes = at::TensorOptions().device(device).dtype(at::kByte), f32 = at::TensorOptions().device(device).dtype(at::kFloat);
  Nested out{{.codes = at::arange(blocks * 32, bytes),
              .scales = at::full({blocks}, 0xEE, bytes),
              .outer = at::full({blocks_of(blocks, 256)}, -1, f32),
              .map = dynamic_map(true, device),
              .offset = double(float(offset))},
             exact};
  quantize_scales(exact, out.blocks);
  return out;
}

TEST(Nf4, ScalesAsCodesComeBackToTheStep) {
  for (const std::int64_t blocks : {1, 255, 256, 257, 1030}) {
    const Nested nested = nested_scales(blocks, 0.0375);
    const auto map = nested.blocks.map.cpu(), outer = nested.blocks.outer.cpu();
    const auto codes = nested.blocks.scales.cpu().to(at::kLong);
    const auto back = map.index_select(0, codes) * outer.repeat_interleave(256).narrow(0, 0, blocks);
    const auto less = nested.exact.cpu() - float(0.0375);
    const auto share = outer.repeat_interleave(256).narrow(0, 0, blocks);
    EXPECT_LE(((back - less).abs() / share).max().item<double>(), 0.00704) << "half of the map's widest gap";
    EXPECT_TRUE(at::equal(outer[0], less.narrow(0, 0, std::min<std::int64_t>(256, blocks)).abs().max()));
  }
}

TEST(Nf4, ScalesAreMultipliedThenAddedEachRounded) {
  const std::int64_t blocks = 1030, count = blocks * 64;
  const Nested nested = nested_scales(blocks, 0.0375);
  const auto codes = nested.blocks.scales.cpu().to(at::kLong);
  const auto product =
      nested.blocks.map.cpu().index_select(0, codes) * nested.blocks.outer.cpu().repeat_interleave(256).narrow(0, 0, blocks);
  QuantizedBlocks plain{.codes = nested.blocks.codes, .scales = (product + float(0.0375)).to(test::device())};
  for (const auto type : kTypes)
    EXPECT_TRUE(at::equal(dense(nested.blocks, count, Codes::nf4, type), dense(plain, count, Codes::nf4, type))) << type;
}

TEST(Nf4, PiecesAreLaidOneAfterAnother) {
  for (const auto kind : {Codes::nf4, Codes::int8})
    for (const auto& counts : std::vector<std::vector<std::int64_t>>{{64, 128, 256}, {70, 33, 1}, {8192 * 3, 64}, {100}}) {
      std::vector<QuantizedBlocks> pieces;
      std::vector<at::Tensor> alone;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        pieces.push_back(on_device(quantized(numbers(counts[i], int(i), at::kFloat), kind)));
        alone.push_back(dense(pieces.back(), counts[i], kind, at::kBFloat16));
      }
      const auto expected = at::cat(alone);
      const auto out = at::full({expected.numel()}, 99, at::TensorOptions().device(test::device()).dtype(at::kBFloat16));
      dequantize(pieces, counts, kind, out);
      EXPECT_TRUE(at::equal(out.cpu(), expected));
    }
}

TEST(Nf4, MemoryNeedNotBeAligned) {
  const std::int64_t count = 64 * 300 + 8;
  for (const auto kind : {Codes::nf4, Codes::int8})
    for (const auto type : kTypes) {
      const auto blocks = on_device(quantized(numbers(count, 4, at::kFloat), kind));
      const auto expected = dense(blocks, count, kind, type);
      const auto out = at::full({count + 1}, 99, at::TensorOptions().device(test::device()).dtype(type)).narrow(0, 1, count);
      dequantize(std::span(&blocks, 1), std::span(&count, 1), kind, out);
      EXPECT_TRUE(at::equal(out.cpu(), expected)) << type;
      const auto moved =
          at::zeros({blocks.codes.numel() + 1}, blocks.codes.options()).narrow(0, 1, blocks.codes.numel()).copy_(blocks.codes);
      EXPECT_TRUE(at::equal(dense({.codes = moved, .scales = blocks.scales}, count, kind, type), expected)) << type;
    }
}

TEST(Nf4, EveryDeviceGivesTheSameBits) {
  if (test::device().is_cpu()) GTEST_SKIP() << "needs a GPU: compares one with a CPU";
  for (const auto kind : {Codes::nf4, Codes::int8})
    for (const auto type : kTypes)
      for (const auto count : kCounts) {
        SCOPED_TRACE(fmt::format("{} of {}, {}", count, c10::toString(type), kind == Codes::nf4 ? "nf4" : "int8"));
        const auto values = numbers(count, 9, type);
        const auto here = quantized(values, kind), host = quantized(values, kind, at::kCPU);
        ASSERT_TRUE(at::equal(here.codes, host.codes));
        ASSERT_TRUE(at::equal(here.scales, host.scales));
        const auto blocks = here.scales.numel();
        const auto nested = [&](const at::Device& device) {
          const auto options = at::TensorOptions().device(device);
          QuantizedBlocks out{.codes = host.codes.to(device),
                              .scales = at::zeros({blocks}, options.dtype(at::kByte)),
                              .outer = at::zeros({blocks_of(blocks, 256)}, options),
                              .map = dynamic_map(true, device),
                              .offset = host.scales.mean().item<float>()};
          quantize_scales(host.scales.to(device), out);
          return out;
        };
        const auto a = nested(test::device()), b = nested(at::kCPU);
        EXPECT_TRUE(at::equal(a.scales.cpu(), b.scales));
        EXPECT_TRUE(at::equal(a.outer.cpu(), b.outer));
        for (const auto out_type : kTypes) {
          const auto on_host = at::zeros({count}, out_type);
          dequantize(std::span(&b, 1), std::span(&count, 1), kind, on_host);
          EXPECT_TRUE(at::equal(dense(a, count, kind, out_type), on_host));
        }
      }
}

}  // namespace
}  // namespace lockstep::kernels
