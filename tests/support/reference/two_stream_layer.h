// A layer of two streams and a condition, as a model of images and text has them, in plain ATen: what a stage must carry besides text.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>

#include <array>

#include "rank/model/layer.h"

namespace lockstep::test {

inline constexpr std::int64_t kWidth = 8;

inline model::UnitSpec two_stream_unit(int layer) {
  model::UnitSpec spec{.name = fmt::format("block {}", layer), .leaves = {}};
  for (const char* name : {"image", "text", "gate"})
    spec.leaves.push_back({.name = name, .pieces = {{fmt::format("{}.{}", layer, name), {kWidth, kWidth}}}, .init_std = 0.3});
  return spec;
}

// joint = mean(image) + mean(text), gate = condition G, image += gate tanh(image W + joint), text += gate tanh(text V + joint).
// Works under autograd too, where the weights ask for it.
struct TwoStreams {
  std::array<at::Tensor, 2> streams, squashed;  // [rows, kWidth] each: what comes in, what goes through tanh
  at::Tensor gate;                              // [1, kWidth]

  static TwoStreams forward(const std::array<at::Tensor, 2>& in, const at::Tensor& condition, const std::array<at::Tensor, 3>& weights) {
    TwoStreams made{.streams = in, .squashed = {}, .gate = at::matmul(condition, weights[2])};
    const at::Tensor joint = in[0].mean(0, true) + in[1].mean(0, true);
    for (std::size_t s = 0; s < 2; ++s) made.squashed[s] = at::tanh(at::matmul(in[s], weights[s]) + joint);
    return made;
  }
};

class TwoStreamLayer final : public model::Layer {
 public:
  explicit TwoStreamLayer(model::StoredUnit unit) : unit_(unit) {}

  void set_recompute(model::Recompute policy) override { recompute_ = policy; }
  std::unique_ptr<model::LayerKept> make_kept() const override { return std::make_unique<Kept>(); }
  void open(const model::Pass& pass) const override { unit_.open(pass); }
  void close(const model::Pass& pass) const override { unit_.close(pass); }

  void forward(model::Border& border, model::Flight&, model::LayerKept* kept) const override {
    TwoStreams made = TwoStreams::forward({whole(border.streams[0]), whole(border.streams[1])}, border.condition, weights());
    for (std::size_t s = 0; s < 2; ++s) border.streams[s] = {made.streams[s], made.gate * made.squashed[s]};
    if (kept == nullptr) return;
    auto& own = static_cast<Kept&>(*kept).made;
    own.streams = made.streams;
    if (recompute_ == model::Recompute::none) own = std::move(made);
  }

  void backward(model::BorderGradient& gradient, model::Flight& flight, model::LayerKept& kept, bool further) const override {
    auto& made = static_cast<Kept&>(kept).made;
    const auto w = weights();
    const at::Tensor& condition = flight.border.condition;
    if (recompute_ != model::Recompute::none) made = TwoStreams::forward(made.streams, condition, w);
    at::Tensor dgate, djoint;
    std::array<at::Tensor, 2> dinner;
    for (std::size_t s = 0; s < 2; ++s) {
      const at::Tensor& dout = gradient.streams[s];
      dinner[s] = dout * made.gate * (1 - made.squashed[s] * made.squashed[s]);
      const at::Tensor to_gate = (dout * made.squashed[s]).sum(0, true), to_joint = dinner[s].sum(0, true);
      dgate = dgate.defined() ? dgate + to_gate : to_gate;
      djoint = djoint.defined() ? djoint + to_joint : to_joint;
      unit_.gradient(s).add_(at::matmul(made.streams[s].t(), dinner[s]));
      unit_.complete(s);
    }
    unit_.gradient(2).add_(at::matmul(condition.t(), dgate));
    unit_.complete(2);
    if (gradient.condition.defined()) gradient.condition.add_(at::matmul(dgate, w[2].t()));
    for (std::size_t s = 0; further && s < 2; ++s)
      gradient.streams[s].add_(at::matmul(dinner[s], w[s].t()) + djoint / double(made.streams[s].size(0)));
    made.squashed = {};  // nobody may read them again
  }

  std::unique_ptr<model::DecodeState> make_decode_state(std::int64_t) const override { return nullptr; }
  void decode(model::Border&, model::Flight&, model::DecodeState&, const model::DecodeStep&) const override {}
  void reset_magnitudes(model::ProjectionScratch&) const override {}

 private:
  struct Kept final : model::LayerKept {
    TwoStreams made;
    at::Tensor& input(std::size_t stream) override { return made.streams[stream]; }
    void add_to(model::HeldMemory& memory) const override {
      for (std::size_t s = 0; s < 2; ++s) {
        memory.add(made.streams[s]);
        memory.add(made.squashed[s]);
      }
    }
  };

  static at::Tensor whole(const model::ResidualStream& stream) {
    return stream.delta.defined() ? stream.residual + stream.delta : stream.residual;
  }
  std::array<at::Tensor, 3> weights() const { return {unit_.weight(0), unit_.weight(1), unit_.weight(2)}; }

  const model::StoredUnit unit_;
  model::Recompute recompute_ = model::Recompute::none;
};

}  // namespace lockstep::test
