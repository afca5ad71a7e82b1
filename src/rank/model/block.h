// One decoder block: norm, attention, norm, SwiGLU, each added to the stream; forward and backward written out.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/kernels/kernels.h"
#include "rank/model/attention.h"
#include "rank/model/buffers.h"
#include "rank/model/layout.h"
#include "rank/model/kv_cache.h"
#include "rank/model/model.h"
#include "rank/model/projection.h"
#include "rank/model/unit.h"

namespace lockstep::model {

// The residual stream between blocks: x = residual + delta. The sum is made by the next norm, which reads both anyway.
struct ResidualStream {
  at::Tensor residual;  // [rows, hidden]
  at::Tensor delta;     // [rows, hidden], undefined after the embedding
};

// Activations of one block.
struct BlockActivations {
  at::Tensor x;             // [rows, hidden] the stream at the block's start
  at::Tensor norm1, rstd1;  // [rows, hidden], [rows]
  at::Tensor qkv;           // [rows, qkv_width]; q and k rotated in place unless heads are normed
  at::Tensor qk;            // [rows, q_width + kv_width] normed and rotated; only with head norms
  AttentionSaved attention;
  at::Tensor mixed;                            // [rows, q_width] attention's output
  at::Tensor middle;                           // [rows, hidden] the stream between attention and MLP
  at::Tensor norm2, rstd2;                     // [rows, hidden], [rows]
  at::Tensor gate_up;                          // [rows, 2 intermediate]
  at::Tensor swiglu;                           // [rows, intermediate]
  std::array<at::Tensor, kBlockMatrices> low;  // what the adapters of its matrices keep; that of down by every policy
};

void add_to(HeldMemory& memory, const BlockActivations& activations);

// Buffers that blocks share, because one at a time needs them.
struct BlockScratch {
  BlockActivations activations;  // those that a policy does not keep, but for the norms
  at::Tensor norm;               // [rows, hidden] a norm's output, of one at a time
  at::Tensor hidden;             // [rows, hidden] forward: what a branch adds to the stream; backward: the gradient at a norm's output
  at::Tensor dmixed, dqkv;       // [rows, q_width], [rows, qkv_width]; only where gate_up leaves no room for them
  ProjectionScratch projection;
};

struct BlockContext {
  std::int64_t time = 0;      // tokens a sample
  at::Tensor positions = {};  // [rows] i32 where records are packed; undefined: row % time
  Segments segments = {};     // where packed records start
  Dropout dropout = {};
  kernels::RotaryTable rotary = {};
  BlockScratch* scratch = nullptr;
};

class Block {
 public:
  // adapters: the unit that holds them, or null.
  Block(const config::ModelConfig& model, const Dims& dims, Unit& unit, Unit* adapters, const config::LoraConfig& lora, std::int64_t layer,
        Recompute recompute);
  void set_recompute(Recompute recompute) { recompute_ = recompute; }
  Recompute recompute() const { return recompute_; }
  std::array<const Projection*, kBlockMatrices> projections() const { return {&qkv_, &out_, &gate_up_, &down_}; }

  // Without `saved` nothing is kept (evaluation).
  ResidualStream forward(const ResidualStream& stream, const BlockContext& context, BlockActivations* saved) const;
  // The same for new tokens of sequences whose earlier ones are in the cache; nothing is kept for a backward.
  ResidualStream decode(const ResidualStream& stream, const BlockContext& context, std::size_t layer, KvCache& cache,
                        const KvCache::Step& step) const;
  // dstream: [rows, hidden] gradient of the stream behind the block; on return, of the stream before it, where `further` asks for it.
  void backward(const at::Tensor& dstream, const BlockContext& context, BlockActivations& saved, bool further = true) const;

 private:
  // Where each activation lives under the policy: the block's own or the shared one.
  struct Places;
  Places places(BlockActivations* saved, BlockScratch& scratch) const;
  void start(const ResidualStream& stream, const Places& at) const;
  HeadViews project(const BlockContext& context, const Places& at) const;
  HeadViews heads(const BlockContext& context, const Places& at) const;
  void attend(const BlockContext& context, const Places& at) const;
  ResidualStream finish(const BlockContext& context, const Places& at) const;
  void expand(const BlockContext& context, const Places& at) const;
  void backward_mlp(const at::Tensor& dstream, const BlockContext& context, const Places& at) const;
  void backward_attention(const at::Tensor& dstream, const BlockContext& context, const Places& at, bool further) const;
  std::pair<at::Tensor, at::Tensor> attention_gradients(const at::Tensor& gate_up, BlockScratch& scratch) const;
  void rotate(const BlockContext& context, const Places& at) const;
  // Whether backward finds gate_up, but neither norms nor SwiGLU's output: it makes them on its way.
  bool lacks_cheap() const { return recompute_ == Recompute::norms || recompute_ == Recompute::qkv; }
  kernels::HeadLayout head_layout(const BlockContext& context) const;
  kernels::HeadNorms head_norms() const;

  const Dims& dims_;
  const BlockLeaves leaves_;
  Unit& unit_;
  const Projection qkv_, out_, gate_up_, down_;
  Recompute recompute_;
};

}  // namespace lockstep::model
