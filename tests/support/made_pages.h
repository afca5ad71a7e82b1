// Pages of ranks as a launcher reads them, made up.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "journal/page.h"

namespace lockstep::support {

inline constexpr std::int64_t second = 1'000'000'000;
inline constexpr std::int64_t now = 1000 * second;

inline journal::Operation operation(std::uint64_t sequence, const char* kind = "all_reduce", const char* what = "gradients of block 14",
                                    std::uint64_t bytes = 4096, journal::OperationState state = journal::OperationState::waited_for,
                                    const char* group = "world") {
  journal::Operation one{};
  std::strncpy(one.group, group, sizeof one.group - 1);
  std::strncpy(one.kind, kind, sizeof one.kind - 1);
  std::strncpy(one.what, what, sizeof one.what - 1);
  one.sequence = sequence;
  one.bytes = bytes;
  one.issued_ns = now - 31 * second;
  one.state = state;
  return one;
}

inline journal::PageView page(int rank, journal::Phase phase, std::vector<journal::Operation> operations = {}, double idle_s = 31) {
  journal::PageView view;
  view.rank = static_cast<std::uint32_t>(rank);
  view.phase = phase;
  view.step = 17;
  view.phase_since_ns = view.progress_ns = now - static_cast<std::int64_t>(idle_s * second);
  view.operations = std::move(operations);
  return view;
}

}  // namespace lockstep::support
