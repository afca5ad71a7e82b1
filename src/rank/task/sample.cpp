// Continues a prompt token by token.
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include <random>

#include "rank/task/task.h"

namespace lockstep::task {
namespace {

std::int64_t choose(at::Tensor logits, const SampleOptions& options, std::mt19937_64& random) {
  logits = logits.to(at::kCPU, at::kFloat).contiguous();
  if (options.temperature <= 0) return logits.argmax().item<std::int64_t>();
  logits = logits.div(options.temperature);
  at::Tensor candidates;
  if (options.top_k > 0 && options.top_k < logits.numel()) std::tie(logits, candidates) = logits.topk(options.top_k);
  const at::Tensor shares = logits.softmax(0).contiguous();
  const float* share = shares.const_data_ptr<float>();
  std::discrete_distribution<std::int64_t> draw(share, share + shares.numel());
  const std::int64_t chosen = draw(random);
  return candidates.defined() ? candidates[chosen].item<std::int64_t>() : chosen;
}

}  // namespace

std::string sample(model::Decoder& model, const data::Vocabulary& vocabulary, const std::string& prompt, at::Device device,
                   const SampleOptions& options) {
  std::vector<std::int32_t> tokens = vocabulary.encode(prompt);
  if (tokens.empty()) tokens = vocabulary.encode("\n");
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed));
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const auto window = std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), options.context);
    at::Tensor input = at::empty({1, window}, at::kLong);
    std::copy(tokens.end() - window, tokens.end(), input.mutable_data_ptr<std::int64_t>());
    const at::Tensor logits = model.logits(input.to(device));
    const std::int64_t next = choose(logits[0][window - 1].narrow(0, 0, vocabulary.size()), options, random);
    tokens.push_back(static_cast<std::int32_t>(next));
  }
  return vocabulary.decode(tokens);
}

}  // namespace lockstep::task
