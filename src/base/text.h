// Small text tools: nearest name for "did you mean", numbers as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string trim(std::string_view text);
std::string lower(std::string_view text);

// Number of single-character edits (swaps of neighbors count as one) between two words.
int edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `word`, if one is near enough to be what was meant.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

std::string human_bytes(std::uint64_t bytes);  // "1.5 GiB"
std::string human_count(double count);         // "10.4M"
std::string human_duration(double seconds);    // "3 min 20 s"
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);

// A word as a shell reads it back, for commands that people copy: in single quotes where it holds anything unusual.
std::string quoted(const std::string& word);
std::string shell_line(std::span<const std::string> words);

}  // namespace lockstep::base
