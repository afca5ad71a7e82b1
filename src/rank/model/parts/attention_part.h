// Grouped-query attention between its two matrices, as a part of a layer: heads projected, normed where the family asks for it, rotated,
// mixed and brought back to the stream's width.
#pragma once

#include "rank/model/workspace.h"
#include "rank/model/decode_cache.h"

namespace lockstep::model {

// What a micro-batch keeps of it.
struct AttentionKept {
  at::Tensor qkv;  // [rows, qkv_width]; q and k rotated in place unless heads are normed
  at::Tensor qk;   // [rows, q_width + kv_width] normed and rotated; only with head norms
  AttentionSaved saved;
  at::Tensor mixed;  // [rows, q_width] attention's output
  ProjectionKept in, out;
};
void add_to(HeldMemory& memory, const AttentionKept& kept);

class AttentionPart {
 public:
  // The homes of what is kept, by the layer's policy: its own or the shared one.
  struct Places {
    AttentionKept& qkv;    // qkv and in
    AttentionKept& qk;     // qk
    AttentionKept& mixed;  // saved, mixed and out
  };
  // What a backward has to make first of what was not kept.
  enum class Again { nothing, rotation, projection };

  AttentionPart(const Dims& dims, const BlockLeaves& leaves, StoredUnit unit, std::optional<Adapter> in, std::optional<Adapter> out);

  // x: [rows, hidden]. out: [rows, hidden] what the part adds to the stream.
  void forward(const at::Tensor& out, const at::Tensor& x, Flight& flight, const Places& at) const;
  // Up to `mixed`, without the last matrix.
  void mix(const at::Tensor& x, Flight& flight, const Places& at) const;
  void decode(const at::Tensor& out, const at::Tensor& x, Flight& flight, const Places& at, DecodeState& state,
              const DecodeStep& step) const;
  std::unique_ptr<DecodeState> make_decode_state(std::int64_t batch) const;
  // dx: [rows, hidden], where `further` asks for it. spare: memory of the layer that is done with, for gradients within the part.
  void backward(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& x, Flight& flight, const Places& at, Again again,
                const at::Tensor& spare, bool further) const;

  std::array<const Projection*, 2> projections() const { return {&in_, &out_}; }

 private:
  HeadViews project(const at::Tensor& x, Flight& flight, const Places& at) const;
  void rotate(Flight& flight, const Places& at) const;
  HeadViews heads(const Flight& flight, const Places& at) const;
  kernels::HeadLayout head_layout(const Flight& flight) const;
  kernels::HeadNorms head_norms() const;
  // Norms over all heads at once: they come before the rotation, which has those of single heads in it.
  struct WideNorm {
    std::size_t leaf;
    std::int64_t column, width;
  };
  std::array<WideNorm, 2> wide_norms() const;
  void norm_all_heads(const at::Tensor& qkv, const at::Tensor& qk) const;
  void backward_all_heads(const at::Tensor& dqkv, const at::Tensor& qkv) const;
  std::pair<at::Tensor, at::Tensor> inner_gradients(const at::Tensor& spare, Workspace& work) const;

  const Dims& dims_;
  const BlockLeaves leaves_;
  StoredUnit unit_;
  const Projection in_, out_;
};

}  // namespace lockstep::model
