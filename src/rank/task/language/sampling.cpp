// Each rule keeps at least one token, and ties stand or fall together, as transformers' processors have it.
#include "base/hash/draws.h"
#include "rank/task/language/sampling.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <limits>

namespace lockstep::task {
namespace {

constexpr double kOut = -std::numeric_limits<double>::infinity();

at::Tensor keep_top_k(const at::Tensor& scores, std::int64_t k) {
  if (k <= 0 || k >= scores.size(-1)) return scores;
  const at::Tensor least = std::get<0>(scores.topk(k)).narrow(-1, k - 1, 1);
  return scores.masked_fill(scores < least, kOut);
}

at::Tensor keep_top_p(const at::Tensor& scores, double p) {
  if (p >= 1) return scores;
  const auto [sorted, order] = scores.sort(-1, /*descending=*/false);
  at::Tensor out = sorted.softmax(-1).cumsum(-1) <= 1 - p;
  out.narrow(-1, out.size(-1) - 1, 1).fill_(false);
  return scores.masked_fill(at::empty_like(out).scatter_(-1, order, out), kOut);
}

at::Tensor keep_min_p(const at::Tensor& scores, double p) {
  if (p <= 0) return scores;
  const at::Tensor shares = scores.softmax(-1);
  return scores.masked_fill(shares < shares.amax(-1, /*keepdim=*/true) * p, kOut);
}

}  // namespace

at::Tensor penalize(const at::Tensor& scores, const at::Tensor& seen, double penalty) {
  return at::where(seen, at::where(scores < 0, scores * penalty, scores / penalty), scores);
}

at::Tensor warp(const at::Tensor& scores, const Sampling& sampling) {
  return keep_min_p(keep_top_p(keep_top_k(scores / sampling.temperature, sampling.top_k), sampling.top_p), sampling.min_p);
}

at::Tensor choose(const at::Tensor& scores, const Sampling& sampling, std::span<const double> draws) {
  if (sampling.temperature <= 0) return scores.argmax(-1);
  // Running sums on a GPU come in no fixed order, and LibTorch refuses them where the same bits are wanted every time.
  if (scores.is_cuda() && at::globalContext().deterministicAlgorithms()) return choose(scores.cpu(), sampling, draws).to(scores.device());
  const at::Tensor reached = warp(scores, sampling).softmax(-1, at::kDouble).cumsum(-1);
  const at::Tensor drawn = at::tensor(at::ArrayRef<double>(draws.data(), draws.size()), at::kDouble).to(scores.device(), true);
  const at::Tensor target = drawn.unsqueeze(1) * reached.narrow(-1, reached.size(-1) - 1, 1);
  return at::searchsorted(reached, target, /*out_int32=*/false, /*right=*/true).squeeze(1);
}

double uniform_draw(std::int64_t seed, std::uint64_t text, std::int64_t position) {
  const std::uint64_t bits = base::mix(base::mix(std::uint64_t(seed), text), std::uint64_t(position));
  return double(bits >> 11) * 0x1p-53;
}

}  // namespace lockstep::task
