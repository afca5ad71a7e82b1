// The ops of a step's end and of a run's start: normal numbers, sums over ranks and of squares, the judgment of a step, updates.
#pragma once

#include <cstdint>
#include <span>

#include "base/ceil_div.h"
#include "rank/kernels/ops/op.h"

namespace lockstep::kernels {

struct GradientRules;  // these four are in kernels.h
struct UpdateBuffers;
struct UpdateSettings;
struct QuantState;

// out[i] = std * normal number (key, first + i).
struct RandomNormal {
  float* out;
  std::uint64_t key;
  std::int64_t first, count;
  float std;
};
// out (f32) = std * normal numbers of (key, first + i).
void random_normal(const at::Tensor& out, std::uint64_t key, double std, std::int64_t first = 0);

// out[i] = rows[0][i] + rows[1][i] + ...: in f32, in this order, rounded once.
struct SumOfRows {
  const void* rows;  // [count_of_rows, width]
  void* out;         // [width]
  std::int64_t count_of_rows, width;
  Type type, out_type;
};
// out: [width], rows: [any number, width], each of its own type: what ranks sent, added up in their order.
void sum_of_rows(const at::Tensor& out, const at::Tensor& rows);

// partials[p] = sum of squares of the p-th block: their sum is the whole, in an order that never changes. Blocks are of one size whatever
// the buffer's: whoever holds some of a buffer's blocks has the same partials of them.
struct SumOfSquares {
  const void* values;
  std::int64_t count;
  Type type;
  double* partials;  // [square_blocks(count)]
};
inline constexpr std::int64_t kSquareBlock = 1 << 15;
constexpr std::int64_t square_blocks(std::int64_t count) { return base::ceil_div(count, kSquareBlock); }
// Sum of squares of each of these flat buffers: [flats] f64 on their device.
at::Tensor sum_of_squares(std::span<const at::Tensor> flats);

// What the optimizer decides on the device, so that no step waits for the host.
struct Control {
  double gradient_norm;  // of the true mean gradient, before clipping
  double factor;         // what an update multiplies a gradient with
  double skip;           // 1: this step changes nothing
  double updates;        // the optimizer's step count
  double loss_scale;     // f16: multiplies the loss
  double good_steps;     // since the scale last changed
  double skipped_in_a_row;
  double skipped_total;
};
inline constexpr int kControlNumbers = 8;

struct FinishGradients {
  Control* control;
  float* scale;  // what the next backward multiplies the loss with: loss_scale / nominal_tokens
  const double *sum_of_squares, *token_count, *loss_sum;
  double nominal_tokens;  // the constant that gradients were divided by
  double max_norm;        // 0: no clipping
  bool dynamic_scale;
  double scale_window;
};
// control: [kControlNumbers] f64, laid out as Control; scale: f32 scalar; the totals: f64 scalars. All on one device.
void finish_gradients(const at::Tensor& control, const at::Tensor& scale, const at::Tensor& sum_of_squares, const at::Tensor& token_count,
                      const at::Tensor& loss_sum, const GradientRules& rules);

// The arithmetic of an update. `apply` takes an update that was made elsewhere (in `gradient`) off the weights.
enum class Rule : int { adamw, lion, sgd, apply };

// One pass over flat buffers. Results in f32 are stored as they are; those in bf16 are rounded stochastically, by bits that follow
// from (key, update count, place) alone.
struct Update {
  void* gradient;
  void* exact;                // weights in the precision that counts: f32 masters, or bf16 weights that have none
  void* weights;              // 16-bit copy of f32 masters, written along; null where forward reads `exact`
  void *first, *second;       // states: adamw both, lion and sgd the first, apply none
  std::int64_t count, place;  // place: of the first number in its unit
  double rate, beta1, beta2, epsilon, decay;
  std::uint64_t key;
  const Control* control;
  Type gradient_type, exact_type, weight_type, state_type;
  Rule rule;
  bool zero_gradient;
};
void update(const UpdateBuffers& buffers, const at::Tensor& control, const UpdateSettings& settings);

// AdamW whose moments are 8-bit codes: in blocks of 256 numbers, a moment is map[code] times the block's largest magnitude. The states of
// Update are null.
struct AdamW8bit : Update {
  std::uint8_t *first_codes, *second_codes;
  float *first_scale, *second_scale;    // [blocks]
  const float *first_map, *second_map;  // [256] ascending
};
inline constexpr std::int64_t kQuantBlock = 256;
void adamw_8bit(const UpdateBuffers& buffers, const QuantState& first, const QuantState& second, const at::Tensor& control,
                const UpdateSettings& settings);

// Muon's first half: momentum = beta momentum + (1 - beta) g; out = (1 - beta) g + beta momentum. g: the gradient, clipped.
struct Nesterov {
  void *gradient, *momentum, *out;
  std::int64_t count, place;
  double beta;
  std::uint64_t key;  // rounds momenta in bf16
  const Control* control;
  Type gradient_type, momentum_type, out_type;
  bool zero_gradient;
};
// Muon's momentum (see Nesterov): out is f32 or bf16. Of the settings it takes beta1, key, place and zero_gradient.
void nesterov(const at::Tensor& gradient, const at::Tensor& momentum, const at::Tensor& out, const at::Tensor& control,
              const UpdateSettings& settings);

#define LOCKSTEP_OPTIMIZER_OPS(op)                                                                                                  \
  op(random_normal, RandomNormal) op(sum_of_rows, SumOfRows) op(sum_of_squares, SumOfSquares) op(finish_gradients, FinishGradients) \
      op(update, Update) op(adamw_8bit, AdamW8bit) op(nesterov, Nesterov)

}  // namespace lockstep::kernels
