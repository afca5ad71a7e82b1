// Keys and values of the tokens that sequences have seen, so that the next token need not compute them again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "rank/model/parts/attention.h"
#include "rank/model/layout.h"

namespace lockstep::model {

// A batch of sequences, each with its own length; grows as they do. One thread, the device's current stream; nothing waits for the host.
class KvCache {
 public:
  // window: how far back a token may look; 0: all the way.
  KvCache(const Dims& dims, std::int64_t window, std::int64_t batch, const at::TensorOptions& options);

  std::int64_t batch() const { return std::int64_t(lengths_.size()); }
  std::span<const std::int64_t> lengths() const { return lengths_; }
  std::int64_t capacity() const { return keys_.front().size(2); }
  // Room for so many tokens a sequence from the start, where that is known: nothing is copied while they come.
  void reserve(std::int64_t tokens);
  // Forgets what a sequence saw from position `length` on.
  void cut(std::int64_t row, std::int64_t length);
  // Goes on with these sequences alone, in this order.
  void keep(std::span<const std::int64_t> rows);

  // Where the next tokens stand; the same for every layer.
  struct Step {
    std::int64_t time = 0;      // new tokens a sequence
    std::int64_t span = 0;      // positions that any of them can see
    at::Tensor positions = {};  // [batch x time] i32
    at::Tensor slots = {};      // [batch, 1, time, 1] i64: where keys go; undefined: all sequences stand at `first`
    std::int64_t first = 0;
    at::Tensor unseen = {};  // [batch, time, span] bool: keys that a query must not see; undefined: it sees all
    bool fresh = false;      // nothing was seen before: plain causal attention is enough
  };
  Step begin(std::int64_t time);
  // Keeps a layer's new keys and values and returns attention's output [batch x time, heads x head_dim]. heads: rotated.
  at::Tensor attend(std::size_t layer, const HeadViews& heads, const Step& step);
  // Of the step's tokens, `counts` were real; the rest filled up shorter sequences and are forgotten. Empty: all were.
  void finish(const Step& step, std::span<const std::int64_t> counts);

 private:
  void store(at::Tensor& cache, const at::Tensor& fresh, const Step& step) const;

  std::int64_t window_, limit_;
  std::vector<std::int64_t> lengths_;
  at::Tensor seen_;                        // [batch] i64, lengths_ on the device
  std::vector<at::Tensor> keys_, values_;  // a layer: [batch, kv_heads, capacity, head_dim]
  AttentionSaved saved_;
};

}  // namespace lockstep::model
