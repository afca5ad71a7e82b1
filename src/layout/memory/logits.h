// Logits are made a chunk at a time: how large one may be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/recompute.h"

namespace lockstep::layout {

// Rows of logits that the head makes at once. chunk_bytes: what a chunk may take; most_chunks: gradients may not be added to more often.
std::int64_t logits_chunk_rows(std::int64_t rows, std::int64_t vocab, std::int64_t element_size, std::int64_t chunk_bytes,
                               std::int64_t most_chunks);
inline constexpr std::int64_t most_logits_bytes = std::int64_t{2} << 30;    // of a chunk
inline constexpr std::int64_t cpu_logits_bytes = std::int64_t{1} << 20;     // a CPU wants the chunk in its cache
inline constexpr std::int64_t lean_logits_bytes = std::int64_t{256} << 20;  // less than attention's backward takes later

// What a chunk may take: where some block keeps all its activations, and where none does.
struct LogitsRoom {
  std::int64_t whole = lean_logits_bytes, lean = lean_logits_bytes;

  std::int64_t beside(const std::vector<Recompute>& policies) const {
    return std::ranges::find(policies, Recompute::none) == policies.end() ? lean : whole;
  }
};
// device_bytes: nothing where the device is not known.
LogitsRoom logits_room(bool on_gpu, bool trained, std::optional<std::int64_t> device_bytes);

}  // namespace lockstep::layout
