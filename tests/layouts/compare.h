// Two results side by side, and a result beside itself: everything that differs, in words.
#pragma once

#include <string>
#include <vector>

#include "layouts/result.h"

namespace lockstep::layouts {

// How far rounding may take a result from one rank's.
struct Tolerance {
  double loss;      // relative
  double gradient;  // of a tensor's largest entry
  double weight;    // of a tensor's length, at the end
  // Weights whose names end so are left to chance. Softmax hardly sees what all keys have in common: in bf16 the gradient of their bias is
  // rounding alone, and methods that go by its sign or its own size walk anywhere.
  const char* by_chance = nullptr;
};
// f32: what sums in another order differ by. bf16: a gradient passes some ten roundings to 8 bits (2^-9 of a number each), and those of
// micro-batches and ranks are rounded before they are summed. Weights part further, because methods that divide by a gradient's own size
// leave the sign of a tiny one to rounding.
Tolerance tolerance_of(const std::string& dtype);

// Losses, evaluation, norms, every gradient and weight by name.
std::vector<std::string> differences(const Result& result, const Result& reference, const Tolerance& tolerance);
// What must hold in any result: the norm is that of the gradients, padding is zero, clipping scales what is updated.
std::vector<std::string> broken_promises(const Result& result);
// Everything to the last bit.
std::vector<std::string> other_bits(const Result& a, const Result& b);

}  // namespace lockstep::layouts
