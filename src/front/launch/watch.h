// Compares the pages of all ranks: who holds the others up, and who called another collective than the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "journal/page.h"

namespace lockstep::launch {

// "0", "0 and 2", "0-3 and 6": ranks as people read them. With a noun: "rank 0", "ranks 0-3 and 6".
std::string list_ranks(std::span<const int> ranks);
std::string name_ranks(std::span<const int> ranks);

// The oldest collective this rank waits in, if it waits.
const journal::Operation* waits_in(const journal::PageView& page);
std::string describe(const journal::Operation& operation);  // "all_reduce 4812, gradients of block 14"

struct Stall {
  double seconds;           // nothing has moved for so long
  std::string text;         // "rank 5 is reading data since 31 s; 7 ranks (0-4, 6 and 7) wait in all_reduce 4812, gradients of block 14"
  std::vector<int> causes;  // ranks the others wait for; empty if all wait
  std::vector<std::string> advice = {};
  bool ends_job = true;  // false: others are at what may take long, which they will finish first, or a disk may answer after all
};
// Nothing while any rank is in a phase that may take long, or something moved within stall_seconds. Two things move nothing, whatever the
// phase and whatever the others do, and are told of: a process that was stopped, and one that the kernel has not let go on for so long.
std::optional<Stall> find_stall(std::span<const journal::PageView> pages, std::int64_t now_ns, double stall_seconds);

// What ranks are doing, as in Stall::text, for any set of pages.
std::string who_does_what(std::span<const journal::PageView> pages, std::int64_t now_ns);

struct Mismatch {
  std::string text;
  std::vector<int> odd_ones;  // the minority
};
// The earliest collective that ranks entered under the same group and number, but with another kind, purpose or size.
std::optional<Mismatch> find_mismatch(std::span<const journal::PageView> pages);

}  // namespace lockstep::launch
