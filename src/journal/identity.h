// What makes two machines parts of one run: named facts, compared before the first collective.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::journal {

struct Fact {
  std::string name;   // "trainer.learning_rate", "data.path: tokens.bin"
  std::string value;  // as a person reads it
};
using Identity = std::vector<Fact>;

// One line for each fact that is not the same in both: "trainer.seed is 1 on machine 0 (a) and 2 on machine 1 (b)".
std::vector<std::string> differences(const Identity& a, const Identity& b, std::string_view name_a, std::string_view name_b);

// One fact a line, for a file or a store; texts are quoted so that any value survives.
std::string to_text(const Identity& identity);
Identity identity_from_text(std::string_view text);

}  // namespace lockstep::journal
