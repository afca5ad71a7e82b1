// As many bytes as leave memory to the rest, in chunks of one size.
#include "layout/memory/logits.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "layout/unit.h"

namespace lockstep::layout {
namespace {

// A trained matrix's whole gradient is read and written again by every chunk: few of them, but memory is left to the rest. Never what
// happens to be free: the cuts decide the order of sums.
std::int64_t trained_logits_bytes(std::int64_t device_bytes) {
  return std::clamp(device_bytes / 32, std::int64_t{128} << 20, most_logits_bytes);
}

}  // namespace

std::int64_t logits_chunk_rows(std::int64_t rows, std::int64_t vocab, std::int64_t element_size, std::int64_t chunk_bytes,
                               std::int64_t most_chunks) {
  constexpr std::int64_t row_step = 128;
  rows = std::max<std::int64_t>(1, rows);
  const std::int64_t most = std::max(row_step, chunk_bytes / (vocab * element_size));
  // Chunks of one size: the last is no sliver.
  const std::int64_t even = base::ceil_div(rows, std::min(most_chunks, base::ceil_div(rows, most)));
  return std::min(rows, round_up(even, row_step));
}

LogitsRoom logits_room(bool on_gpu, bool trained, std::optional<std::int64_t> device_bytes) {
  if (!on_gpu) return {cpu_logits_bytes, cpu_logits_bytes};
  if (!trained) return {lean_logits_bytes, lean_logits_bytes};
  return {device_bytes ? trained_logits_bytes(*device_bytes) : most_logits_bytes, lean_logits_bytes};
}

}  // namespace lockstep::layout
