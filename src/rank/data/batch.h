// A micro-batch as whoever moves it sees it: fields whose meaning only the task knows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

struct Batch {
  std::vector<at::Tensor> on_device;  // made on the host, pinned if asked for, and copied to the device; undefined: this batch has none
  std::vector<at::Tensor> on_host;    // what only the host reads
  std::vector<std::int64_t> samples;  // [batch] sample numbers; -1 for a sample of weight 0
  std::int64_t trained = 0;           // what its summed loss is a sum of: tokens, say
};

// Numbered samples and the batches that are made of them. Thread-safe.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::int64_t samples() const = 0;
  // The most that one sample trains: positions of a full one.
  virtual std::int64_t sample_size() const = 0;
  // Every batch has the shape of every other.
  virtual bool fixed_shapes() const = 0;
  // Equal for equal content: checkpoints keep it, so that a resume on other data is noticed.
  virtual std::string fingerprint() const = 0;
  virtual Batch make(std::span<const std::int64_t> samples, std::int64_t epoch, bool pinned) const = 0;
};

}  // namespace lockstep::data
