// Batches of text: what their fields are, and how they are made of a corpus.
#pragma once

#include <memory>

#include "rank/data/batch.h"
#include "rank/data/data.h"

namespace lockstep::data {

// The fields of a batch of text. `time` is seq_len where records are packed; otherwise it is that of the longest sample, rounded up to a
// multiple of 64 so that shapes vary little, and shorter ones are padded at their end.
struct TextFields {
  at::Tensor tokens;       // [batch, time] i64
  at::Tensor targets;      // [batch, time] i64; -100 where nothing is trained: prompts, padding, samples of weight 0
  at::Tensor keys = {};    // [batch] i64 random keys of its rows, where something in the model draws; else undefined
  at::Tensor starts = {};  // [records + 1] i32 on the host: rows of the flattened batch where packed records start, and its end;
                           // undefined: each row of tokens is one record. Positions restart at each, attention does not cross them
};
inline TextFields text(const Batch& batch) {
  return {batch.on_device.at(0), batch.on_device.at(1), batch.on_device.at(2), batch.on_host.at(0)};
}
inline Batch batch_of(const TextFields& fields, std::int64_t trained = 0) {
  return {.on_device = {fields.tokens, fields.targets, fields.keys}, .on_host = {fields.starts}, .samples = {}, .trained = trained};
}

// keys: batches carry random keys, drawn from the seed.
std::shared_ptr<const Source> text_source(std::shared_ptr<const Corpus> corpus, std::int64_t seed, bool keys);

}  // namespace lockstep::data
