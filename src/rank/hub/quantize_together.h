// Ranks that hold a unit's quantized matrices between them quantize equal parts of each, and gather each other's: the bits of one rank that
// quantizes all of it, and no number is read twice.
#pragma once

#include <vector>

#include "rank/hub/hub_folder.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::hub {

// Of one unit that is held packed, in a shard. First add() for every piece, then take() for those of which this rank has a part, then
// finish(), which is collective.
class QuantizeTogether {
 public:
  QuantizeTogether(const model::Shard& shard, const Gather& gather) : shard_(shard), gather_(gather) {}

  // This rank's numbers of a piece: whole blocks, perhaps none.
  struct Part {
    std::size_t number;
    std::int64_t begin, count;
  };
  Part add(model::QuantizedMatrix& matrix, std::size_t piece);
  // values: in the matrix's type, on its device.
  void take(const Part& part, const at::Tensor& values);
  void finish();

 private:
  struct Room {
    model::QuantizedMatrix* matrix;
    std::size_t piece;
    std::int64_t blocks;         // of every rank; the last ranks may have fewer
    std::int64_t codes, scales;  // where they begin in a rank's row of bytes
  };
  at::Tensor row() const;

  model::Shard shard_;
  const Gather& gather_;
  std::vector<Room> rooms_;
  std::int64_t row_bytes_ = 0;
  at::Tensor mine_;  // [row_bytes] what others gather
};

}  // namespace lockstep::hub
