// Fuzzing in this process: inputs that follow from (target, seed, number) alone, run through one reader each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

struct Target {
  std::string_view name;
  std::vector<std::string> seeds;               // good inputs, at most 4 KiB each
  std::vector<std::string_view> words;          // what this reader's inputs are made of
  std::function<void(const std::string&)> run;  // returns, or throws what speaks to people; anything else is a bug
};

// Input `number` of a target under a seed.
std::string make_input(const Target& target, std::uint64_t seed, std::uint64_t number);

// Runs inputs until LOCKSTEP_FUZZ_RUNS (10,000) are done, from LOCKSTEP_FUZZ_SEED (1) and LOCKSTEP_FUZZ_FIRST (0) on. A crash, a hang or a
// wrong exception prints the input in hex, and the line that runs it again. Fails the running test.
void fuzz(const Target& target);

}  // namespace lockstep::fuzz
