// Where the time of a step goes, by part and rank, and which rank the others wait for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep::journal {

enum class Part : std::uint32_t { data, forward, backward, communication, optimizer, checkpoint, other };
inline constexpr Part all_parts[] = {Part::data,      Part::forward,    Part::backward, Part::communication,
                                     Part::optimizer, Part::checkpoint, Part::other};
inline constexpr std::size_t part_count = std::size(all_parts);
std::string_view name_of(Part part);   // "data", "forward": as metrics.jsonl names them
std::string_view describe(Part part);  // after "rank 1 is slower in": "reading data", "the forward pass", ...

// Seconds of one rank, by part. Communication is what the rank waits for others; everything else is its own work.
using PartSeconds = std::array<double, part_count>;
inline double of(const PartSeconds& seconds, Part part) { return seconds[static_cast<std::size_t>(part)]; }
double total(const PartSeconds& seconds);
double at_work(const PartSeconds& seconds);

struct Straggler {
  int rank = 0;
  Part part = Part::other;  // where most of it is lost
  double seconds = 0;       // at work so much longer than the middle one of all ranks
  double share = 0;         // of its step
};
// Nothing below a tenth of the step: ranks are never quite alike.
inline constexpr double straggler_share = 0.1;
std::optional<Straggler> find_straggler(std::span<const PartSeconds> ranks);

}  // namespace lockstep::journal
