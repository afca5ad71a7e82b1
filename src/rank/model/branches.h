// What language layers share, wherever their norms are: attention and feed-forward, the unit that holds their weights, and where what
// they make is kept under each recompute policy.
#pragma once

#include "rank/model/layer.h"
#include "rank/model/parts/attention_part.h"
#include "rank/model/parts/feed_forward.h"

namespace lockstep::model {

class Branches : public Layer {
 public:
  // adapters: the unit that holds them, or none.
  Branches(const config::ModelConfig& model, const Dims& dims, StoredUnit unit, std::optional<StoredUnit> adapters,
           const config::LoraConfig& lora, std::int64_t layer);

  void set_recompute(Recompute policy) override { recompute_ = policy; }
  void open(const Pass& pass) const override;
  void close(const Pass& pass) const override;
  std::unique_ptr<DecodeState> make_decode_state(std::int64_t batch) const override { return attention_.make_decode_state(batch); }
  void reset_magnitudes(ProjectionScratch& scratch) const override;

 protected:
  // Where activations live under the policy: the flight's own or the shared ones.
  template <typename Kept>
  struct Homes {
    Kept& own;      // by every policy: the layer's input
    Kept& matmuls;  // what the matmuls but qkv, and attention, made
    Kept& qkv;      // q, k and v
    Kept& cheap;    // SwiGLU, and heads that are normed

    AttentionPart::Places attention() const { return {.qkv = qkv.attention, .qk = cheap.attention, .mixed = matmuls.attention}; }
    FeedForward::Places feed_forward() const {
      return {.gate_up = matmuls.feed_forward, .swiglu = cheap.feed_forward, .out = own.feed_forward};
    }
  };
  // Without `kept` all of them are shared.
  template <typename Kept>
  Homes<Kept> homes(LayerKept* kept, Workspace& work) const {
    if (!work.kept) work.kept = make_kept();
    auto& shared = static_cast<Kept&>(*work.kept);
    auto& own = kept ? static_cast<Kept&>(*kept) : shared;
    const bool all = recompute_ == Recompute::none;
    return {.own = own,
            .matmuls = recompute_ == Recompute::blocks ? shared : own,
            .qkv = all || recompute_ == Recompute::norms ? own : shared,
            .cheap = all ? own : shared};
  }

  // Whether gate_up was kept, but not what is cheap.
  bool lacks_cheap() const { return recompute_ == Recompute::norms || recompute_ == Recompute::qkv; }
  // What attention's backward has to make first.
  AttentionPart::Again attention_again() const;

  const Dims& dims_;
  const StoredUnit unit_;
  const AttentionPart attention_;
  const FeedForward feed_forward_;
  Recompute recompute_ = Recompute::none;

 private:
  const std::optional<StoredUnit> adapters_;
};

}  // namespace lockstep::model
