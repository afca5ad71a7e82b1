// AdamW whose moments are 8-bit codes in blocks of 256, with bitsandbytes' maps and states.
#pragma once

#include "layout/memory/memory.h"
#include "rank/kernels/kernels.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

// Blocks begin with a parameter, not with a buffer, so states mean the same as bitsandbytes'. Parameters of fewer than 4096 numbers
// keep f32 moments, as there. Weights are f32 masters or, without those, bf16 rounded stochastically.
class AdamW8bit : public Optimizer {
 public:
  static constexpr std::int64_t kSmallest = layout::smallest_coded;

  AdamW8bit(const model::Store& store, const Settings& settings);

  std::vector<model::NamedSlice> named_state() const override;

 private:
  // Neighbouring parameters that one call updates.
  struct Span {
    std::int64_t begin, count;  // in the slice
    double rate, decay;
    bool coded;
    std::int64_t state;  // where its scales (coded) or its f32 moments begin
  };
  struct State {
    std::vector<Span> spans;
    at::Tensor first_codes, second_codes;  // [count of the slice] u8
    at::Tensor first_scale, second_scale;  // [blocks] f32
    at::Tensor first, second;              // f32: of the small parameters
  };
  void update(std::size_t slice, double learning_rate) override;
  State state_for(const model::HeldSlice& slice) const;

  std::vector<State> states_;
  at::Tensor first_map_, second_map_;
};

}  // namespace lockstep::optim
