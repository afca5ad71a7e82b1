// Quantizes pieces as they arrive and makes matrices dense again for the time of a product.
#include "rank/model/weights/quantized.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/zeros.h>

#include "base/ceil_div.h"
#include "base/error.h"

namespace lockstep::model {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 23;  // elements that cross to the device at once: a multiple of every block

using base::ceil_div;

static_assert(layout::kWeightBlock == kernels::kWeightBlock && layout::kScaleBlock == kernels::kScaleBlock,
              "bytes are counted by the same blocks");

// The mean as torch.mean gives it on one thread, whatever the threads and the device: every rank must get the same bits.
double mean_of(const at::Tensor& scales) {
  const struct OneThread {
    int before = at::get_num_threads();
    OneThread() { at::set_num_threads(1); }
    ~OneThread() { at::set_num_threads(before); }
  } one_thread;
  return scales.cpu().mean().item<float>();
}

kernels::QuantizedBlocks copied(const kernels::QuantizedBlocks& blocks, const at::Device& device) {
  const auto copy = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true) : tensor;
  };
  return {.codes = copy(blocks.codes),
          .scales = copy(blocks.scales),
          .outer = copy(blocks.outer),
          .map = copy(blocks.map),
          .offset = blocks.offset};
}

}  // namespace

at::Tensor PackedMemory::take(std::int64_t count, at::ScalarType type) {
  const std::int64_t bytes = count * static_cast<std::int64_t>(c10::elementSize(type));
  const at::Tensor taken = bytes_.narrow(0, taken_, bytes).view(type);
  taken_ += layout::round_up(bytes, layout::kPackedAlignment);
  return taken;
}

QuantizedMatrix::QuantizedMatrix(const LeafSpec& leaf, const UnitStorage& storage, PackedMemory* memory)
    : kind_(storage.quantization == Quantization::nf4 ? kernels::Codes::nf4 : kernels::Codes::int8),
      options_(at::TensorOptions().device(storage.device).dtype(storage.weight_dtype)),
      shape_(leaf.shape()),
      packed_(memory != nullptr) {
  const auto room = [&](std::int64_t count, at::ScalarType type) {
    return memory ? memory->take(count, type) : at::zeros({count}, options_.dtype(type));
  };
  const bool nested = kind_ == kernels::Codes::nf4 && storage.double_quant;
  for (const Piece& piece : leaf.pieces) {
    std::int64_t count = 1;
    for (const std::int64_t size : piece.shape) count *= size;
    counts_.push_back(count);
    const std::int64_t blocks = ceil_div(count, kernels::kWeightBlock);
    kernels::QuantizedBlocks held{.codes = room(kernels::code_bytes(kind_, count), at::kByte),
                                  .scales = room(blocks, nested ? at::kByte : at::kFloat)};
    if (nested) {
      held.outer = room(ceil_div(blocks, kernels::kScaleBlock), at::kFloat);
      held.map = kernels::dynamic_map(true, storage.device);
    }
    pieces_.push_back(std::move(held));
  }
}

void QuantizedMatrix::store(std::size_t piece, const at::Tensor& weights) {
  base::check(weights.numel() == counts_[piece], "a piece is stored whole");
  const at::Tensor flat = weights.reshape({-1});
  store(piece, [&](std::int64_t first, std::int64_t count) { return flat.narrow(0, first, count); });
}

void QuantizedMatrix::store(std::size_t piece, const std::function<at::Tensor(std::int64_t first, std::int64_t count)>& chunk) {
  kernels::QuantizedBlocks& held = pieces_[piece];
  const std::int64_t all = counts_[piece];
  const bool nested = held.outer.defined();
  const at::Tensor scales = nested ? at::empty({held.scales.numel()}, options_.dtype(at::kFloat)) : held.scales;
  for (std::int64_t first = 0; first < all; first += kChunk) {
    const std::int64_t count = std::min(kChunk, all - first);
    quantize(chunk(first, count).to(options_.device()).to(dtype()).contiguous(),
             held.codes.narrow(0, kernels::code_bytes(kind_, first), kernels::code_bytes(kind_, count)),
             scales.narrow(0, first / kernels::kWeightBlock, ceil_div(count, kernels::kWeightBlock)));
  }
  settle(held, scales);
}

void QuantizedMatrix::quantize(const at::Tensor& values, const at::Tensor& codes, const at::Tensor& scales) const {
  kernels::quantize_blocks(values, kind_, codes, scales);
}

void QuantizedMatrix::put_together(std::size_t piece, const at::Tensor& codes, const at::Tensor& scales) {
  pieces_[piece].codes.copy_(codes);
  settle(pieces_[piece], scales);
}

void QuantizedMatrix::settle(kernels::QuantizedBlocks& held, const at::Tensor& scales) const {
  if (!held.outer.defined()) {
    if (!held.scales.is_same(scales)) held.scales.copy_(scales);
    return;
  }
  held.offset = mean_of(scales);
  kernels::quantize_scales(scales, held);
}

const at::Tensor& QuantizedMatrix::dense(at::Tensor& buffer) const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape_) count *= size;
  const auto bytes = static_cast<std::size_t>(count) * options_.dtype().itemsize();
  if (!buffer.defined() || buffer.scalar_type() != dtype() || buffer.storage().nbytes() < bytes) {
    buffer = at::Tensor();  // given back first, so that the larger one may take its place
    buffer = at::empty({count}, options_);
  }
  if (buffer.sizes() != at::IntArrayRef(shape_)) buffer = buffer.as_strided(shape_, {shape_[1], 1}, 0);
  kernels::dequantize(pieces_, counts_, kind_, buffer);
  return buffer;
}

void QuantizedMatrix::assign(std::size_t piece, const kernels::QuantizedBlocks& blocks) {
  kernels::QuantizedBlocks& held = pieces_[piece];
  base::check(kind_ == kernels::Codes::nf4 && blocks.codes.numel() == held.codes.numel() && blocks.scales.numel() == held.scales.numel(),
              "codes of the same matrix");
  held.codes.copy_(blocks.codes);
  if (packed_) {
    assign_beside(piece, blocks);
    held.scales.copy_(blocks.scales);
    if (held.outer.defined()) held.outer.copy_(blocks.outer);
    return;
  }
  const at::Tensor codes = held.codes;
  held =
      copied({.codes = {}, .scales = blocks.scales, .outer = blocks.outer, .map = blocks.map, .offset = blocks.offset}, options_.device());
  held.codes = codes;
}

void QuantizedMatrix::assign_beside(std::size_t piece, const kernels::QuantizedBlocks& blocks) {
  kernels::QuantizedBlocks& held = pieces_[piece];
  if (held.outer.defined() != blocks.outer.defined())
    throw base::usage_error("model", "the folder's 4-bit scales are {}, and ranks that hold shards of them take them as they are: set {}.",
                            blocks.outer.defined() ? "quantized themselves" : "plain",
                            blocks.outer.defined() ? "model.double_quant=true" : "model.double_quant=false");
  if (!held.outer.defined()) return;
  held.map.copy_(blocks.map);
  held.offset = blocks.offset;
}

void dequantize_into(const at::Tensor& out, const kernels::QuantizedBlocks& blocks) {
  const kernels::QuantizedBlocks here = copied(blocks, out.device());
  const std::int64_t count = out.numel();
  kernels::dequantize(std::span(&here, 1), std::span(&count, 1), kernels::Codes::nf4, out);
}

std::int64_t QuantizedMatrix::bytes() const {
  std::size_t bytes = 0;
  for (const kernels::QuantizedBlocks& held : pieces_) {
    bytes += held.codes.nbytes() + held.scales.nbytes();
    if (held.outer.defined()) bytes += held.outer.nbytes() + held.map.nbytes();
  }
  return static_cast<std::int64_t>(bytes);
}

std::int64_t QuantizedMatrix::map_bytes() const {
  std::int64_t bytes = 0;
  for (const kernels::QuantizedBlocks& held : pieces_) bytes += held.map.defined() ? static_cast<std::int64_t>(held.map.nbytes()) : 0;
  return bytes;
}

}  // namespace lockstep::model
