// A rank's row: the codes of its blocks of every piece, each followed by their f32 scales.
#include "rank/hub/quantize_together.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/ceil_div.h"

namespace lockstep::hub {
namespace {

using base::ceil_div;

constexpr std::int64_t block = kernels::kWeightBlock, scale_bytes = sizeof(float);

}  // namespace

QuantizeTogether::Part QuantizeTogether::add(model::QuantizedMatrix& matrix, std::size_t piece) {
  const std::int64_t all = matrix.elements(piece), blocks = ceil_div(ceil_div(all, block), std::int64_t{shard_.ranks});
  const std::int64_t code_bytes = kernels::code_bytes(matrix.kind(), blocks * block);
  rooms_.push_back({&matrix, piece, blocks, row_bytes_, row_bytes_ + code_bytes});
  row_bytes_ += code_bytes + blocks * scale_bytes;
  const std::int64_t begin = std::min(all, shard_.index * blocks * block), end = std::min(all, begin + blocks * block);
  return {rooms_.size() - 1, begin, end - begin};
}

at::Tensor QuantizeTogether::row() const { return at::zeros({row_bytes_}, rooms_.front().matrix->options().dtype(at::kByte)); }

void QuantizeTogether::take(const Part& part, const at::Tensor& values) {
  if (!mine_.defined()) mine_ = row();
  const Room& room = rooms_[part.number];
  const std::int64_t blocks = ceil_div(part.count, block);
  room.matrix->quantize(values.view({-1}), mine_.narrow(0, room.codes, kernels::code_bytes(room.matrix->kind(), part.count)),
                        mine_.narrow(0, room.scales, blocks * scale_bytes).view(at::kFloat));
}

void QuantizeTogether::finish() {
  if (rooms_.empty()) return;
  if (!mine_.defined()) mine_ = row();
  const at::Tensor all = at::empty({shard_.ranks, row_bytes_}, mine_.options());
  gather_(all.view({-1}), mine_);
  for (const Room& room : rooms_) {
    const auto joined = [&](std::int64_t begin, std::int64_t bytes) { return all.narrow(1, begin, bytes).reshape({-1}); };
    const std::int64_t count = room.matrix->elements(room.piece);
    const at::Tensor codes = joined(room.codes, room.scales - room.codes), scales = joined(room.scales, room.blocks * scale_bytes);
    room.matrix->put_together(room.piece, codes.narrow(0, 0, kernels::code_bytes(room.matrix->kind(), count)),
                              scales.view(at::kFloat).narrow(0, 0, ceil_div(count, block)));
  }
}

}  // namespace lockstep::hub
