// The one catalogue of explained failures: a stable code for each, what people see, why, and what to do. Terminal, page, `lockstep check`,
// `lockstep explain` and docs/errors.md all read it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::catalog {

struct Entry {
  std::string_view code;     // "LS-401"; never given to another failure
  std::string_view title;    // "GPU memory is full"
  std::string_view symptom;  // what people see, in their words
  std::string_view cause;    // whole sentences
  std::string_view fix;      // "a smaller --batch-size ...": what to try, begun in lower case, without a full stop
  // Any of these in a message tells of it: lower case, * stands for anything within a line. Ours, and those of NCCL, CUDA, Gloo,
  // PyTorch and other trainers.
  std::vector<std::string_view> patterns = {};
  bool consequence = false;  // another failure's, more often than not: told after those that stand on their own
};

// All of them, by code.
const std::vector<Entry>& entries();
const Entry* find(std::string_view code);   // in any case, "LS-401" or "401"; null: there is none
const Entry& known(std::string_view code);  // of a code that our own code names

// What a message tells of. Within a line the longest pattern wins, as the most particular one; of several lines the first entry in the
// order of `entries()`, consequences last. Null: nothing that is known.
const Entry* recognize(std::string_view message);

// Entries that speak of all these words in their titles or symptoms, for who asks in words of his own. Empty where there are none, or
// nothing but short words.
std::vector<const Entry*> about(std::string_view words);

// Where a log tells of something.
struct Hit {
  const Entry* entry = nullptr;
  std::size_t line = 0;  // of the first one, counted from 1
  std::string text = {};
  std::size_t times = 0;
};
// Causes in the order in which they appear, then consequences. Codes that stand in the log count, and win over what the line says.
std::vector<Hit> scan(std::string_view log);

// "LS-401 GPU memory is full: `lockstep explain LS-401` says more".
std::string pointer_to(const Entry& entry);

// Whether the line holds the pattern.
bool matches(std::string_view lower_case_line, std::string_view pattern);

}  // namespace lockstep::catalog
