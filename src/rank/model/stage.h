// A run of layers, with or without the ends of the model: what one rank computes of it. Knows nothing of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layout/recompute.h"
#include "rank/model/border.h"
#include "rank/model/weights/store.h"

namespace lockstep::kernels {
class Progress;
}

namespace lockstep::model {

class HeldMemory;
class Layer;
struct Flight;
using layout::Recompute;

// The walk over layers in both directions is the same for every model. One that has an end of its model overrides what concerns that end;
// by itself it is a stage from the middle: borders come from the stage before it and go to the one behind.
//
// Forward and backward are explicit: no autograd graph is built. One thread, the device's current stream.
class Stage {
 public:
  // first: the number of its first layer in the model.
  Stage(std::vector<std::unique_ptr<Layer>> layers, at::Device device, std::int64_t first = 0);
  virtual ~Stage();
  Stage(const Stage&) = delete;

  at::Device device() const { return device_; }

  // So many micro-batches may be between forward and backward at once, one at first. What a flight left behind is gone when it goes forward
  // again, and with release_buffers(). All that is summed is added in backward.
  void set_flights(std::size_t count);

  // What comes in, where the stage has not the model's start: to be set before forward, and left alone until backward is done. Behind
  // forward, where the stage has not the model's end: what goes out, whole and in memory of the flight.
  Border& border(std::size_t flight = 0);
  // Before backward that of what went out, behind it that of what came in; good until the next backward.
  BorderGradient& gradient() { return gradient_; }

  // A stage with the model's start is given a batch instead.
  void forward(const Micro& micro, std::size_t flight = 0);
  // Adds to the units' gradients and tells the store of each leaf that is complete. With the model's end: of scale * (summed loss), f32
  // scalars on the device, and returns the summed loss; elsewhere of gradient(), and returns nothing defined.
  virtual at::Tensor backward(const at::Tensor& scale, std::size_t flight = 0);

  // From the next step on: one policy per layer. offload: the inputs of layers that are recomputed wait in host memory.
  virtual void set_recompute(const std::vector<Recompute>& policies, bool offload = false);
  // Gives activations back; the next step makes them anew.
  virtual void release_buffers();
  // From the next step on, after every layer in both directions, once its kernels are launched, progress is marked; null: nowhere.
  void mark_blocks(std::shared_ptr<kernels::Progress> progress);

  // From the next step on, layers multiply in 8 bits, on a device where kernels::has_fp8.
  virtual void use_fp8();
  // DoRA: magnitudes that leave the loaded weights as they are. Once, when base weights and adapters are in place.
  virtual void reset_magnitudes() {}

  // Gradients are added to once per micro-batch, but for those of one unit maybe: an output matrix, once per chunk of logits. Which one,
  // where it is trained; how often in the last backward; and in at most how many chunks from the next one on.
  virtual std::optional<std::size_t> often_added() const { return std::nullopt; }
  virtual std::int64_t additions() const { return 1; }
  virtual void set_most_chunks(std::int64_t) {}

  // What steps have left behind, in bytes.
  struct Held {
    std::int64_t activations = 0;  // of layers, what they share, the head's rows and the rotary tables
    std::int64_t dense_copy = 0;   // of a quantized matrix
    std::int64_t logits = 0;       // of the last chunk, which is gone again
  };
  virtual Held held() const;

 protected:
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  Flight& flight(std::size_t index);

  // flight.border through all layers.
  void walk_forward(Flight& flight);
  // gradient() back through them. further: whether whoever is before the first layer wants it.
  void walk_backward(Flight& flight, bool further);
  // The same forward with nothing kept.
  void look_through(Flight& flight) const;
  // What goes out leaves the buffers that it was made in: the sums of streams, for another stage.
  void send(Flight& flight) const;
  // The same for a later backward of this one: as they are, and only where another flight may come between.
  void park(Flight& flight) const;
  void add_to(HeldMemory& memory) const;

 private:
  void forget_activations();

  const std::vector<std::unique_ptr<Layer>> layers_;
  const at::Device device_;
  std::vector<std::pair<std::string, std::string>> range_names_;  // "block 3 forward", "block 3 backward"
  std::vector<Flight> flights_;
  BorderGradient gradient_;
  std::vector<std::size_t> offloaded_;           // layers whose inputs wait in host memory, in order
  std::shared_ptr<kernels::Progress> progress_;  // null: nobody looks
};

}  // namespace lockstep::model
