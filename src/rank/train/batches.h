// Where a step's micro-batches come from: each rank reads its own, or rank 0 reads all and hands them out.
#pragma once

#include <memory>
#include <vector>

#include "rank/comm/comm.h"
#include "rank/data/data.h"

namespace lockstep::train {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Collective where rank 0 hands out. Tensors are on the group's device.
  virtual std::vector<data::Batch> next(const comm::Group& group) = 0;
  virtual data::Position position() const = 0;
};

// data.distributed_loading=true: no communication.
std::unique_ptr<BatchSource> read_own_share(std::shared_ptr<const data::Corpus> corpus, data::Loader::Options options,
                                            data::Position start);
// data.distributed_loading=false: one reader, for data that only rank 0 can reach quickly.
std::unique_ptr<BatchSource> receive_from_first(std::shared_ptr<const data::Corpus> corpus, data::Loader::Options options,
                                                data::Position start);

}  // namespace lockstep::train
