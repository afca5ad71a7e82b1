// The decoder: embedding, blocks, head, and the loop over them in both directions.
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "rank/model/block.h"
#include "rank/model/buffers.h"
#include "rank/model/head.h"
#include "rank/model/model.h"
#include "rank/model/rotary.h"

namespace lockstep::model {

struct Decoder::Parts {
  Dims dims;
  Unit& embedding;
  std::vector<Block> blocks;
  Head head;
  std::vector<BlockActivations> saved;
  BlockScratch scratch;  // of training and evaluation in turn: buffers are made anew where their shapes differ
  at::Tensor embedded;   // [rows, hidden]
  at::Tensor dstream;    // [rows, hidden]
  const at::Tensor frequencies;
  kernels::RotaryTable rotary;  // grows with the longest sequence seen: a model's own limit may be far beyond
  std::function<void()> on_backward;

  Parts(const config::ModelConfig& config, const std::vector<Unit*>& units, Keep keep)
      : dims(config),
        embedding(*units.front()),
        head(dims, *units.back(), dims.tied ? units.front() : nullptr),
        saved(dims.layers),
        frequencies(inverse_frequencies(dims.head_dim, dims.rope_theta, config.rope_scaling)) {
    for (std::int64_t i = 0; i < dims.layers; ++i) blocks.emplace_back(dims, *units[i + 1], keep);
  }

  BlockContext context(std::int64_t time) {
    const auto device = embedding.weights().device();
    if (!rotary.cosine.defined() || rotary.cosine.size(0) < time)
      rotary = kernels::rotary_table(std::max(time, std::min<std::int64_t>(2 * time, dims.max_time)), frequencies, device);
    return {.time = time, .rotary = rotary, .scratch = &scratch};
  }

  at::Tensor embed(const at::Tensor& tokens, at::Tensor& out) {
    fit(out, {tokens.numel(), dims.hidden}, embedding.weights().options());
    kernels::embedding_forward(tokens, embedding.weight(kEmbeddingWeight), out);
    return out;
  }

  ResidualStream evaluate(const at::Tensor& tokens) {
    at::Tensor own;
    ResidualStream stream{embed(tokens, own), {}};
    const auto context = this->context(tokens.size(1));
    for (const auto& block : blocks) stream = block.forward(stream, context, nullptr);
    return stream;
  }
};

Decoder::Decoder(const config::ModelConfig& config, std::vector<Unit*> units, Keep keep) {
  base::check(std::int64_t(units.size()) == Dims(config).layers + 2, "a decoder has an embedding, its blocks and a head");
  parts_ = std::make_unique<Parts>(config, units, keep);
}

Decoder::~Decoder() = default;

void Decoder::set_keep(std::size_t block, Keep keep) { parts_->blocks.at(block).set_keep(keep); }

void Decoder::on_backward(std::function<void()> callback) { parts_->on_backward = std::move(callback); }

at::Tensor Decoder::forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale) {
  const c10::NoGradGuard no_graph;
  auto& p = *parts_;
  const auto context = p.context(tokens.size(1));
  ResidualStream stream{p.embed(tokens, p.embedded), {}};
  for (std::size_t i = 0; i < p.blocks.size(); ++i) stream = p.blocks[i].forward(stream, context, &p.saved[i]);

  if (p.on_backward) p.on_backward();
  const auto& dstream = fit(p.dstream, stream.residual.sizes(), stream.residual.options());
  const auto loss = p.head.loss_backward(stream, targets.reshape({-1}), scale, dstream);
  for (std::size_t i = p.blocks.size(); i-- > 0;) p.blocks[i].backward(dstream, context, p.saved[i]);
  kernels::embedding_backward(tokens, dstream, p.embedding.gradient(kEmbeddingWeight));
  p.embedding.gradient_ready(kEmbeddingWeight);
  return loss;
}

at::Tensor Decoder::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  const c10::NoGradGuard no_graph;
  return parts_->head.loss(parts_->evaluate(tokens), targets.reshape({-1}));
}

at::Tensor Decoder::logits(const at::Tensor& tokens) {
  const c10::NoGradGuard no_graph;
  return parts_->head.logits(parts_->evaluate(tokens)).view({tokens.size(0), tokens.size(1), parts_->dims.vocab});
}

}  // namespace lockstep::model
