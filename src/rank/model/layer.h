// A layer of a model: forward, backward and decode over a border. What it keeps of a micro-batch is the flight's.
#pragma once

#include "rank/model/flight.h"
#include "rank/model/decode_cache.h"
#include "rank/model/projection/projection.h"

namespace lockstep::model {

class Layer {
 public:
  virtual ~Layer() = default;

  virtual void set_recompute(Recompute policy) = 0;
  virtual std::unique_ptr<LayerKept> make_kept() const = 0;
  // Around a pass through the layer: its unit and that of its adapters.
  virtual void open(const Pass& pass) const = 0;
  virtual void close(const Pass& pass) const = 0;

  // border: what comes in; on return, what goes out. Without `kept` nothing is kept (evaluation).
  virtual void forward(Border& border, Flight& flight, LayerKept* kept) const = 0;
  // gradient: of what went out; on return, of what came in, where `further` asks for it.
  virtual void backward(BorderGradient& gradient, Flight& flight, LayerKept& kept, bool further) const = 0;
  // Forward for new tokens of sequences, with what the layer itself keeps of their earlier ones; nothing is kept for a backward.
  virtual std::unique_ptr<DecodeState> make_decode_state(std::int64_t batch) const = 0;
  virtual void decode(Border& border, Flight& flight, DecodeState& state, const DecodeStep& step) const = 0;

  // DoRA: magnitudes that leave the loaded weights as they are.
  virtual void reset_magnitudes(ProjectionScratch& scratch) const = 0;
};

}  // namespace lockstep::model
