// The only door between layers and a model's numbers. Layers, which know nothing of ranks, say when they need a unit and when its
// gradients are complete; where the numbers lie, and who else has some of them, is for whoever stands behind the door.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rank/model/layout.h"

namespace lockstep::model {

class QuantizedMatrix;

// Which micro-batch of a step.
struct Micro {
  std::int64_t index = 0;
  bool first = true, last = true;
};

// What a unit is opened for: one direction of one micro-batch. Evaluation and text are forward alone.
struct Pass {
  enum class Direction { forward, backward };
  Direction direction = Direction::forward;
  Micro micro = {};
};

// Numbers [begin, begin + count) of a unit's flat buffer, as this rank holds them: [count] each.
struct HeldSlice {
  std::size_t unit;
  std::int64_t begin, count;
  at::Tensor exact;    // in the precision that counts: masters where there are some
  at::Tensor weights;  // what forward reads; shares exact's memory where there are no masters
  at::Tensor gradients;
};

class Store {
 public:
  virtual ~Store() = default;

  // Units are numbered: those of the model in forward order, then those of adapters.
  virtual std::size_t units() const = 0;
  // The unit of the adapters beside a unit of the model.
  virtual std::optional<std::size_t> adapters_of(std::size_t unit) const = 0;
  virtual const UnitSpec& spec(std::size_t unit) const = 0;
  virtual const layout::FlatLayout& flat(std::size_t unit) const = 0;
  virtual bool trained(std::size_t unit) const = 0;
  virtual at::TensorOptions options(std::size_t unit) const = 0;  // of weights as forward reads them

  // Around all that a layer does with a unit in one pass. Calls of open and close come in the same order on every rank.
  virtual void open(std::size_t unit, const Pass& pass) = 0;
  virtual void close(std::size_t unit, const Pass& pass) = 0;
  // While the unit is open; addresses are the same every time, so that a recorded pass finds them again.
  virtual const at::Tensor& weight(std::size_t unit, std::size_t leaf) const = 0;
  virtual const at::Tensor& gradient(std::size_t unit, std::size_t leaf) const = 0;  // undefined where the unit is not trained
  // Null where the leaf is held dense, in weight().
  virtual const QuantizedMatrix* quantized(std::size_t unit, std::size_t leaf) const = 0;
  // The leaf becomes these numbers, wherever it is held: for what is computed from loaded weights.
  virtual void assign(std::size_t unit, std::size_t leaf, const at::Tensor& values) = 0;
  // A backward says so when a leaf's gradient of this micro-batch is complete; of a unit that is not trained it means nothing.
  virtual void complete(std::size_t unit, std::size_t leaf) = 0;

  // Of trained units, in the order that backward completes them: what this rank updates; what it counts in sums over all numbers, where
  // all ranks together have every number exactly once; what it has to save, of which the saver writes its share.
  virtual std::span<const HeldSlice> updates() const = 0;
  virtual std::span<const HeldSlice> counts() const = 0;
  virtual std::span<const HeldSlice> saves() const = 0;
  // Where a unit is cut between those who count it, ascending, the same on every rank; nothing where one of them counts all of it.
  virtual std::vector<std::int64_t> cuts(std::size_t unit) const = 0;

  // For optimizers that look at whole matrices. Collective where the unit is cut, in the same order on every rank.
  // Whether this rank works on the matrix that begins at number `begin` of the unit.
  virtual bool owns(std::size_t unit, std::int64_t begin) const = 0;
  // The summed gradients of a unit, flat and whole; behind them there may be padding.
  virtual at::Tensor whole_gradients(std::size_t unit) const = 0;
  // This rank's numbers, as in updates(), of a buffer like the last one, to which each rank has written those of its own matrices and
  // zeros elsewhere.
  virtual at::Tensor own_share(std::size_t unit, const at::Tensor& whole) const = 0;
};

// A unit as its layers see it.
class StoredUnit {
 public:
  StoredUnit(Store& store, std::size_t unit) : store_(&store), unit_(unit) {}

  bool trained() const { return store_->trained(unit_); }
  at::TensorOptions options() const { return store_->options(unit_); }
  void open(const Pass& pass) const { store_->open(unit_, pass); }
  void close(const Pass& pass) const { store_->close(unit_, pass); }
  const at::Tensor& weight(std::size_t leaf) const { return store_->weight(unit_, leaf); }
  const at::Tensor& gradient(std::size_t leaf) const { return store_->gradient(unit_, leaf); }
  const QuantizedMatrix* quantized(std::size_t leaf) const { return store_->quantized(unit_, leaf); }
  void complete(std::size_t leaf) const { store_->complete(unit_, leaf); }
  void assign(std::size_t leaf, const at::Tensor& values) const { store_->assign(unit_, leaf, values); }

  std::size_t index() const { return unit_; }
  bool operator==(const StoredUnit&) const = default;

 private:
  Store* store_;
  std::size_t unit_;
};

}  // namespace lockstep::model
