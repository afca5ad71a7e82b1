// The two parts of a language layer, with the unit that holds their weights: what layers with norms at other places share.
#pragma once

#include "rank/model/layer.h"
#include "rank/model/parts/attention_part.h"
#include "rank/model/parts/feed_forward.h"

namespace lockstep::model {

struct Branches {
  // adapters: the unit that holds them, or none.
  Branches(const config::ModelConfig& model, const Dims& dims, StoredUnit unit, std::optional<StoredUnit> adapters,
           const config::LoraConfig& lora, std::int64_t layer);

  void open(const Pass& pass) const;
  void close(const Pass& pass) const;
  void reset_magnitudes(ProjectionScratch& scratch) const;

  StoredUnit unit;
  std::optional<StoredUnit> adapters;
  const AttentionPart attention;
  const FeedForward feed_forward;
};

}  // namespace lockstep::model
