// Sums over bits, as equality between ranks is checked.
#include "rank/parallel/base_fingerprint.h"

#include <ATen/ops/cat.h>

#include "rank/model/weights/quantized.h"

namespace lockstep::parallel {

at::Tensor sums_of_bits(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.contiguous().view({-1}).view(at::kByte);
  const bool words = bytes.numel() % 4 == 0 && tensor.storage_offset() * tensor.element_size() % 4 == 0;
  const at::Tensor bits = words ? bytes.view(at::kInt) : bytes;
  return at::cat({bits.sum(at::kLong).view({1}), bits.slice(0, 0, bits.numel(), 3).sum(at::kLong).view({1})});
}

namespace {

void add_quantized(std::vector<at::Tensor>& sums, const model::Unit& unit) {
  for (std::size_t leaf = 0; leaf < unit.spec().leaves.size(); ++leaf) {
    const model::QuantizedMatrix* matrix = unit.quantized(leaf);
    if (matrix == nullptr) continue;
    for (std::size_t piece = 0; piece < unit.spec().leaves[leaf].pieces.size(); ++piece) {
      const kernels::QuantizedBlocks& blocks = matrix->piece(piece);
      for (const at::Tensor& part : {blocks.codes, blocks.scales, blocks.outer}) {
        if (part.defined() && part.numel() > 0) sums.push_back(sums_of_bits(part));
      }
    }
  }
}

}  // namespace

std::string base_fingerprint(const Replica& replica) {
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < replica.units.size(); ++i) {
    const model::Unit* unit = replica.units[i].get();
    if (unit->trainable()) continue;
    replica.store->open(i, {});  // whole, whoever holds what of it
    if (unit->weights().defined() && unit->weights().numel() > 0) sums.push_back(sums_of_bits(unit->weights()));
    add_quantized(sums, *unit);
    replica.store->close(i, {});
  }
  if (sums.empty()) return {};
  const at::Tensor numbers = at::cat(sums).cpu();
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a over the sums, in order
  for (const std::int64_t number : std::span(numbers.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(numbers.numel()))) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (static_cast<std::uint64_t>(number) >> shift & 0xff)) * 0x100000001b3ull;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace lockstep::parallel
