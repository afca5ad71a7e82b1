// Sequences that are being written: how far each has come, and what layers keep of what they have seen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rank/model/layout.h"

namespace lockstep::model {

// Where the next tokens stand; the same for every layer.
struct DecodeStep {
  std::int64_t time = 0;      // new tokens a sequence
  std::int64_t span = 0;      // positions that any of them can see
  at::Tensor positions = {};  // [batch x time] i32
  at::Tensor slots = {};      // [batch, 1, time, 1] i64: where keys go; undefined: all sequences stand at `first`
  std::int64_t first = 0;
  at::Tensor unseen = {};  // [batch, time, span] bool: keys that a query must not see; undefined: it sees all
  bool fresh = false;      // nothing was seen before: plain causal attention is enough
};

// What one layer keeps of a batch of sequences.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  // Room for so many tokens a sequence, of which the first `used` are to stay.
  virtual void reserve(std::int64_t room, std::int64_t used) = 0;
  // Goes on with these sequences alone, in this order. rows: i64 on the device.
  virtual void keep(const at::Tensor& rows) = 0;
};

// A batch of sequences, each with its own length; grows as they do. One thread, the device's current stream; nothing waits for the host.
class DecodeCache {
 public:
  // window: how far back a token may look; 0: all the way.
  DecodeCache(const Dims& dims, std::int64_t window, std::int64_t batch, at::Device device,
              std::vector<std::unique_ptr<DecodeState>> layers);

  std::int64_t batch() const { return std::int64_t(lengths_.size()); }
  std::span<const std::int64_t> lengths() const { return lengths_; }
  std::int64_t capacity() const { return capacity_; }
  // Room for so many tokens a sequence from the start, where that is known: nothing is copied while they come.
  void reserve(std::int64_t tokens);
  // Forgets what a sequence saw from position `length` on.
  void cut(std::int64_t row, std::int64_t length);
  // Goes on with these sequences alone, in this order.
  void keep(std::span<const std::int64_t> rows);

  DecodeStep begin(std::int64_t time);
  DecodeState& layer(std::size_t index) const { return *layers_.at(index); }
  // Of the step's tokens, `counts` were real; the rest filled up shorter sequences and are forgotten. Empty: all were.
  void finish(const DecodeStep& step, std::span<const std::int64_t> counts);

 private:
  std::int64_t window_, limit_;
  std::int64_t capacity_ = 0;
  std::vector<std::int64_t> lengths_;
  at::Tensor seen_;  // [batch] i64, lengths_ on the device
  std::vector<std::unique_ptr<DecodeState>> layers_;
};

}  // namespace lockstep::model
