// Low-rank adapters (LoRA, DoRA): their arithmetic beside a frozen matrix. layout/adapters.h tells which matrices have one.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/model/buffers.h"
#include "rank/model/layout.h"
#include "rank/model/weights/store.h"

namespace lockstep::model {

// Which elements of an adapter's input are dropped: a pure function of these, so any spread over ranks draws the same.
struct Dropout {
  at::Tensor keys;        // [batch] i64 on the device, one a row of tokens; undefined: nothing is dropped
  std::int64_t time = 0;  // rows that share a key
};

// Buffers that one matrix at a time needs.
struct AdapterScratch {
  at::Tensor dlow;      // [rows, parts x rank] gradient of the low-rank product
  at::Tensor dropped;   // [rows, in] the input with elements dropped
  at::Tensor product;   // [rows, out] DoRA: the product before its gain
  at::Tensor dproduct;  // [rows, out] DoRA: its gradient
};

// DoRA: what one micro-batch keeps from forward to backward.
struct DoraKept {
  at::Tensor gain;   // [out] of the weights' type: magnitude / norm; 1 in columns without an adapter
  at::Tensor norms;  // [adapted columns] f32, of the rows of weight + scale B A
};

// The adapter of one stacked matrix: out = scale x A^T B^T for each part, to which the frozen product is added. Thin products are bound
// by what they read and write; the frozen one is not, so it is the one that adds. DoRA: then each output column is brought to its
// magnitude.
class Adapter {
 public:
  Adapter(StoredUnit unit, AdaptedMatrix place, const config::LoraConfig& lora, std::uint64_t site);

  bool is_dora() const { return dora_; }
  std::int64_t low_width() const { return place_.low_width(); }
  // Of every part, where they have the same; else nothing.
  std::optional<std::int64_t> rank() const { return place_.has_one_b() ? std::optional(place_.parts.front().rank) : std::nullopt; }
  std::size_t parts() const { return place_.parts.size(); }
  const at::Tensor& a() const { return unit_.weight(place_.a); }                // [low_width, in]
  const at::Tensor& b() const { return unit_.weight(place_.parts.front().b); }  // [adapted columns, rank] where there is a rank()

  // low: [rows, low_width] = scale x A^T, kept for backward.
  void forward_low(const at::Tensor& x, at::Tensor& low, const Dropout& dropout, AdapterScratch& scratch) const;
  // out: [rows, out] becomes the adapter's share, 0 in columns that have none.
  void forward_out(const at::Tensor& out, const at::Tensor& low) const;
  // scratch.dlow = gradient of the low-rank product, which the other two read.
  void backward_low(const at::Tensor& dout, AdapterScratch& scratch) const;
  // dx becomes the adapter's share, from scratch.dlow.
  void backward_input(const at::Tensor& dx, const Dropout& dropout, AdapterScratch& scratch) const;
  void backward_weight(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& low, const Dropout& dropout,
                       AdapterScratch& scratch) const;

  bool drops(const Dropout& dropout) const { return dropout.keys.defined() && dropout_ > 0; }

  // DoRA, for these base weights.
  DoraKept gain_over(const at::Tensor& weight) const;
  // dmagnitude += column sums of dout * product / norm.
  void backward_magnitude(const at::Tensor& dout, const at::Tensor& product, const DoraKept& kept) const;
  // Magnitudes that leave the weights as they are.
  void reset_magnitude(const at::Tensor& weight) const;

 private:
  at::Tensor row_norms(const at::Tensor& weight) const;  // [adapted columns]
  void clear_other_columns(const at::Tensor& out) const;
  const at::Tensor& dropped(const at::Tensor& x, const Dropout& dropout, AdapterScratch& scratch) const;

  // The part's share of the low-rank product, of A and of B.
  at::Tensor low_of(const AdaptedMatrix::Part& part, const at::Tensor& low) const { return low.narrow(1, part.low, part.rank); }
  at::Tensor a_of(const AdaptedMatrix::Part& part) const { return a().narrow(0, part.low, part.rank); }
  at::Tensor b_of(const AdaptedMatrix::Part& part) const { return unit_.weight(part.b).narrow(0, part.row, part.columns); }
  static at::Tensor columns_of(const AdaptedMatrix::Part& part, const at::Tensor& out) { return out.narrow(1, part.column, part.columns); }

  StoredUnit unit_;
  AdaptedMatrix place_;
  std::optional<double> scale_;  // where all parts have the same
  double dropout_;
  bool dora_;
  std::uint64_t site_;
};

}  // namespace lockstep::model
