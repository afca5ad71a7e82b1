// Goes through numbers and says where they part.
#include "layouts/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace lockstep::layouts {
namespace {

using Words = std::vector<std::string>;

// Not finite is far from everything.
bool near(double a, double b, double most) { return std::abs(a - b) <= most; }
bool relatively_near(double a, double b, double tolerance) { return near(a, b, tolerance * std::max(std::abs(a), std::abs(b))); }

void compare_rows(const std::vector<double>& a, const std::vector<double>& b, double tolerance, const char* what, Words& found) {
  if (a.size() != b.size() || a.empty()) return found.push_back(fmt::format("{}: {} steps, not {}", what, a.size(), b.size()));
  for (std::size_t step = 0; step < a.size(); ++step) {
    if (relatively_near(a[step], b[step], tolerance)) continue;
    return found.push_back(fmt::format("{} of step {}: {:.9g}, not {:.9g} ({:.2g} of it)", what, step + 1, a[step], b[step],
                                       std::abs(a[step] - b[step]) / std::abs(b[step])));
  }
}

std::span<const float> numbers_of(const Result::Units& units, const Piece& piece) {
  return std::span(units.at(piece.unit)).subspan(std::size_t(piece.begin), std::size_t(piece.count));
}

struct Scaled {
  std::span<const float> numbers;
  double scale = 1;
};

// The worst tensor alone: one mistake shows in many.
struct Worst {
  double share = 0;
  std::string text;
};

void compare_tensors(const std::string& name, const Scaled& a, const Scaled& b, Worst& worst) {
  double largest = 0, apart = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < b.numbers.size(); ++i) {
    largest = std::max(largest, std::abs(b.scale * double(b.numbers[i])));
    const double difference = std::abs(a.scale * double(a.numbers[i]) - b.scale * double(b.numbers[i]));
    if (!(difference <= apart)) apart = difference, where = i;
  }
  if (apart == 0) return;
  const double share = apart / largest;  // of zeros: infinite
  if (share <= worst.share) return;
  worst = {share, fmt::format("{}[{}]: {:.9g}, not {:.9g} ({:.2g} of the largest entry)", name, where, a.scale * double(a.numbers[where]),
                              b.scale * double(b.numbers[where]), share)};
}

// How far apart they are, of the second one's length.
void compare_lengths(const std::string& name, std::span<const float> a, std::span<const float> b, Worst& worst) {
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    apart += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
    length += double(b[i]) * double(b[i]);
  }
  const double share = std::sqrt(apart / length);
  if (apart == 0 || share <= worst.share) return;
  worst = {share, fmt::format("{}: {:.2g} of its length apart", name, share)};
}

enum class By { largest, length };

Worst worst_of(const Result& a, const Result& b, Result::Units Result::*part, By by, Words& found, const char* left_out = nullptr) {
  const bool gradients = part == &Result::gradients;
  Worst worst;
  if (a.pieces.size() != b.pieces.size()) {
    found.push_back(fmt::format("{} tensors are trained, not {}", a.pieces.size(), b.pieces.size()));
    return worst;
  }
  for (std::size_t i = 0; i < a.pieces.size(); ++i) {
    if (a.pieces[i].name != b.pieces[i].name) {
      found.push_back(fmt::format("tensor {} is {}, not {}", i, a.pieces[i].name, b.pieces[i].name));
      return worst;
    }
    const std::span<const float> mine = numbers_of(a.*part, a.pieces[i]), theirs = numbers_of(b.*part, b.pieces[i]);
    if (by == By::length && left_out != nullptr && a.pieces[i].name.ends_with(left_out)) continue;
    if (by == By::length)
      compare_lengths(a.pieces[i].name, mine, theirs, worst);
    else
      compare_tensors(a.pieces[i].name, {mine, gradients ? a.to_mean : 1}, {theirs, gradients ? b.to_mean : 1}, worst);
  }
  return worst;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

double norm_of(const Result::Units& units) {
  double squares = 0;
  for (const std::vector<float>& unit : units)
    for (const float number : unit) squares += double(number) * double(number);
  return std::sqrt(squares);
}

void check_norm(const Result& result, Words& found) {
  const double reported = result.norms.front(), norm = result.to_mean * norm_of(result.gradients);
  const double tolerance = result.on_a_gpu ? 1e-7 : 1e-9;  // GPUs add up some of the squares in f32
  if (relatively_near(norm, reported, tolerance)) return;
  found.push_back(fmt::format("the norm is said to be {:.15g}, that of the gradients in f64 is {:.15g} ({:.2g} off)", reported, norm,
                              std::abs(norm - reported) / norm));
}

std::string in_words(const std::vector<double>& numbers) {
  std::string words;
  for (const double number : numbers) words += fmt::format("{}{:.0f}", words.empty() ? "" : " ", number);
  return words;
}

void check_padding(const Result& result, const Result::Units& units, const char* what, Words& found) {
  std::vector<std::vector<bool>> named;
  for (const auto& unit : units) named.emplace_back(unit.size());
  for (const Piece& piece : result.pieces) std::fill_n(named.at(piece.unit).begin() + piece.begin, piece.count, true);
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (std::size_t i = 0; i < units[unit].size(); ++i) {
      if (named[unit][i] || units[unit][i] == 0) continue;
      return found.push_back(fmt::format("{}: the padding of unit {} has {} at {}", what, unit, units[unit][i], i));
    }
  }
}

// A plain update is the learning rate times the clipped mean gradient, number by number.
void check_update(const Result& result, Words& found) {
  const double norm = result.to_mean * norm_of(result.gradients);
  const bool clips = result.max_norm > 0;
  if (clips && norm < 2 * result.max_norm) found.push_back(fmt::format("a norm of {} is not clipped to {}", norm, result.max_norm));
  const double scale = result.to_mean * (clips ? result.max_norm / norm : 1) * result.learning_rate;
  double squares = 0;
  for (const Piece& piece : result.pieces) {
    const auto before = numbers_of(result.before, piece), after = numbers_of(result.after, piece),
               gradient = numbers_of(result.gradients, piece);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double moved = double(before[i]) - double(after[i]), expected = scale * double(gradient[i]);
      squares += moved * moved;
      if (near(moved, expected, 1e-6 * std::max(1.0, std::abs(double(before[i]))))) continue;
      return found.push_back(fmt::format("{}[{}] moves by {:.6g}, not by {:.6g}", piece.name, i, moved, expected));
    }
  }
  if (clips && !relatively_near(std::sqrt(squares), result.learning_rate * result.max_norm, 1e-3))
    found.push_back(
        fmt::format("the step is {:.6g} long; clipped it is {:.6g}", std::sqrt(squares), result.learning_rate * result.max_norm));
}

}  // namespace

Tolerance tolerance_of(const std::string& dtype) {
  if (dtype == "f32") return {.loss = 1e-5, .gradient = 1e-5, .weight = 1e-3};
  // A gradient passes through some twenty operations that round to 8 bits, each by another amount where the loss is scaled by another
  // number of samples: of ten thousand entries the farthest is 5 % of the largest apart, seen where one sample is all there is.
  // Weights follow: ten steps of Adam with 8-bit moments were 5.5 % of a tensor's length apart. So do losses: 0.45 % at the tenth step of
  // SGD where few tokens are trained, on a CPU that has no bf16 of its own and so rounds elsewhere; all shards had the same bits there.
  return {.loss = 8e-3, .gradient = 0x1p-4, .weight = 0.08, .by_chance = "k_proj.bias"};
}

std::vector<std::string> differences(const Result& result, const Result& reference, const Tolerance& tolerance) {
  Words found;
  compare_rows(result.losses, reference.losses, tolerance.loss, "loss", found);
  compare_rows({result.eval_loss}, {reference.eval_loss}, tolerance.loss, "evaluation loss", found);
  const Worst gradient = worst_of(result, reference, &Result::gradients, By::largest, found);
  if (!(gradient.share <= tolerance.gradient)) found.push_back("gradient of " + gradient.text);
  const Worst weight = worst_of(result, reference, &Result::weights, By::length, found, tolerance.by_chance);
  if (!(weight.share <= tolerance.weight)) found.push_back("weight " + weight.text);
  return found;
}

std::vector<std::string> broken_promises(const Result& result) {
  Words found;
  check_padding(result, result.gradients, "gradients", found);
  check_padding(result, result.weights, "weights", found);
  check_norm(result, found);
  if (result.traffic != result.planned)
    found.push_back(
        fmt::format("gathers, their bytes, reductions and theirs are {}, not {}", in_words(result.traffic), in_words(result.planned)));
  if (!result.before.empty()) check_update(result, found);
  return found;
}

std::vector<std::string> other_bits(const Result& a, const Result& b) {
  Words found;
  if (!same_bits(a.losses, b.losses)) found.emplace_back("losses have other bits");
  if (!same_bits(a.norms, b.norms)) found.emplace_back("norms have other bits");
  if (!same_bits({a.eval_loss}, {b.eval_loss})) found.emplace_back("the evaluation has other bits");
  for (const auto& [part, what] : {std::pair(&Result::gradients, "gradient of "), std::pair(&Result::weights, "weight ")}) {
    const Worst worst = worst_of(a, b, part, By::largest, found);
    if (worst.share > 0) found.push_back(what + worst.text);
  }
  return found;
}

}  // namespace lockstep::layouts
