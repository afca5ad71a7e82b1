// A frozen matrix, quantized: NF4 as bitsandbytes holds it, or blockwise int8.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "rank/kernels/kernels.h"
#include "rank/model/weights/unit.h"

namespace lockstep::model {

// Bytes that are handed out one stretch after another, as layout::packed_bytes counts them.
class PackedMemory {
 public:
  explicit PackedMemory(at::Tensor bytes) : bytes_(std::move(bytes)) {}
  at::Tensor take(std::int64_t count, at::ScalarType type);

 private:
  at::Tensor bytes_;
  std::int64_t taken_ = 0;
};

// Owns the codes of a leaf, on the unit's device. Each Hugging Face piece (q, k, v) is quantized by itself, as bitsandbytes quantizes
// each linear layer by itself, so that pieces can be exchanged with its checkpoints.
class QuantizedMatrix {
 public:
  // memory: what it lies in, from whoever packs many of them; null: memory of its own.
  QuantizedMatrix(const LeafSpec& leaf, const UnitStorage& storage, PackedMemory* memory = nullptr);

  // Quantizes one piece's weights: any float type, on any device, row by row. They are first rounded to the unit's type, and cross to the
  // device in chunks, so that nothing of the piece's size is made there.
  void store(std::size_t piece, const at::Tensor& weights);
  // The same, from whoever makes elements [first, first + count) when asked.
  void store(std::size_t piece, const std::function<at::Tensor(std::int64_t first, std::int64_t count)>& chunk);

  // The two halves of store(), for whoever has a piece's blocks made in several places: codes and f32 scales of some whole blocks, from
  // `values` in the unit's type on its device; and a piece of which all codes and f32 scales are known.
  void quantize(const at::Tensor& values, const at::Tensor& codes, const at::Tensor& scales) const;
  void put_together(std::size_t piece, const at::Tensor& codes, const at::Tensor& scales);

  // The weights [out, in] in the unit's type, written into `buffer`, which is made as large as needed and may be shared by matrices.
  const at::Tensor& dense(at::Tensor& buffer) const;

  // What a checkpoint of quantized weights stores.
  const kernels::QuantizedBlocks& piece(std::size_t piece) const { return pieces_[piece]; }
  // Takes a copy of codes that were made elsewhere, with their scales as they are held there, plain or as codes. NF4 alone.
  void assign(std::size_t piece, const kernels::QuantizedBlocks& blocks);
  // Of them, in memory that ranks share: what is no part of that memory. Codes and scales are the caller's to write into piece(), as much
  // of them as this rank keeps. UserError where scales are not held as they are here.
  void assign_beside(std::size_t piece, const kernels::QuantizedBlocks& blocks);

  std::int64_t elements(std::size_t piece) const { return counts_[piece]; }
  kernels::Codes kind() const { return kind_; }
  const at::TensorOptions& options() const { return options_; }  // of dense(): device and type
  at::ScalarType dtype() const { return options_.dtype().toScalarType(); }
  std::int64_t bytes() const;
  std::int64_t map_bytes() const;  // of them: what scales' codes stand for

 private:
  // Scales as they are held, from f32 ones.
  void settle(kernels::QuantizedBlocks& held, const at::Tensor& scales) const;

  kernels::Codes kind_;
  at::TensorOptions options_;
  std::vector<std::int64_t> shape_, counts_;
  std::vector<kernels::QuantizedBlocks> pieces_;
  bool packed_;
};

// out = the weights that NF4 codes stand for, in out's type and on its device.
void dequantize_into(const at::Tensor& out, const kernels::QuantizedBlocks& blocks);

}  // namespace lockstep::model
