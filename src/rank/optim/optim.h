// Optimizers over units, learning-rate schedules, clipping and loss scaling. Decisions are made on the device: no step waits for the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "config/run_config.h"
#include "rank/model/weights/store.h"
#include "rank/model/weights/unit.h"
#include "rank/optim/squares.h"

namespace lockstep::optim {

// Learning rate of update `step` (0 is the first) of `total`: warm-up from 1/warmup of the peak, then the schedule. A pure function.
double learning_rate(const config::TrainerConfig& trainer, double peak, std::int64_t step, std::int64_t total);

// The numbers of a finished step, on the host.
struct StepReport {
  double gradient_norm = 0;  // of the mean gradient, before clipping
  bool skipped = false;      // loss or gradient was not finite, or no token was valid
  std::int64_t updates = 0;
  double loss_scale = 1;
  std::int64_t skipped_in_a_row = 0;
  std::int64_t skipped_total = 0;
};

struct Settings {
  config::Optimizer method = config::Optimizer::adamw;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double momentum = 0.9, muon_momentum = 0.95;
  double embedding_rate = 1;        // times the learning rate: token embedding and output head
  double adapter_b_rate = 1;        // times the learning rate: B matrices of adapters
  double max_grad_norm = 1;         // 0: no clipping
  double nominal_tokens = 1;        // global batch x sequence length: the constant that losses are divided by
  bool dynamic_loss_scale = false;  // f16
  double initial_loss_scale = 1;
  double loss_scale_window = 2000;
  std::int64_t seed = 0;  // of stochastic rounding
};
Settings settings_for(const config::RunConfig& config, double nominal_tokens);

// Owns the states of what this rank updates (Store::updates()) and the control numbers on the device. One thread, the device's current
// stream. Not collective: the totals it is given are already summed over ranks, so every rank decides the same.
//
// One step:
//   scale()            -> what backward multiplies the summed loss with
//   ...forward, backward, reduction of gradients...
//   finish_gradients() -> norm, clipping, finite or skip, next loss scale
//   step(lr)           -> states, master weights, weights; gradients become zero
//
// Units without master weights (UnitStorage::master = false) are updated with stochastic rounding, and so are their states: the bits
// follow from (seed, unit, update count, place), so they are the same on every rank, on every device and after a resume.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // f32 scalar on the device: loss_scale / nominal_tokens.
  const at::Tensor& scale() const { return scale_; }

  // Sums of squares of the gradients that this rank counts, as they stand: [square_sums] f64 on the device, 0 for those that other ranks
  // count: added up over the ranks, they are those of all.
  at::Tensor sum_of_squares() const { return squares_.measure(); }
  std::int64_t square_sums() const { return squares_.sums(); }
  // The totals over all ranks, on the device, of any float type: sums of squares of the summed gradient, valid tokens, loss.
  void finish_gradients(const at::Tensor& sum_of_squares, const at::Tensor& token_count, const at::Tensor& loss_sum);
  // In forward order; `updated` hears of each unit when its new weights are under way on the stream.
  void step(double learning_rate, const std::function<void(std::size_t unit)>& updated = {});

  // [8] f64 on the device, laid out as kernels::Control: copy it without waiting, read it with report_of.
  const at::Tensor& control() const { return control_; }
  static StepReport report_of(const at::Tensor& control_on_host);
  StepReport report() const;  // waits for the device

  // States for checkpoints: views by the parameters' names, "<state>.<name>"; docs/checkpoints.md lists them for each method.
  virtual std::vector<model::NamedSlice> named_state() const = 0;
  void restore_control(std::int64_t updates, double loss_scale, std::int64_t good_steps, std::int64_t skipped_total);
  std::int64_t good_steps() const;  // waits for the device; for checkpoints

 protected:
  // store: must outlive it.
  Optimizer(const model::Store& store, const Settings& settings);

  // A stretch of a slice whose numbers are all updated alike.
  struct Stretch {
    std::int64_t begin, count;  // in the slice
    double rate;                // times the learning rate
    double decay;               // weight decay
  };
  double rate_of(const model::LeafSpec& leaf) const;
  // The whole slice, padding included, in as few stretches as its leaves allow.
  std::vector<Stretch> stretches(const model::HeldSlice& slice) const;
  // What the random bits of a unit's rounding follow from, beside the update count and a number's place in the unit.
  std::uint64_t key_of(const model::HeldSlice& slice) const;

  // A piece of a unit, as much of it as lies in a slice.
  struct HeldPiece {
    const model::LeafSpec* leaf;
    const model::Piece* piece;
    std::int64_t begin, count;  // in the slice; count is 0 where all of it is elsewhere
    std::int64_t first;         // the number of the piece that lies at `begin`
    std::int64_t in_unit;       // where the piece begins there
    double rate, decay;

    bool whole() const { return count == piece->elements(); }
  };
  // All pieces of the slice's unit.
  std::vector<HeldPiece> held_pieces(const model::HeldSlice& slice) const;
  // Views of `flat` (one number per number of the slice) by the names of its unit's pieces, "<state>.<name>".
  void add_views(std::vector<model::NamedSlice>& views, std::string_view state, const model::HeldSlice& slice,
                 const at::Tensor& flat) const;
  static model::NamedSlice named(std::string_view state, const HeldPiece& held, const at::Tensor& numbers);

  virtual void begin_step() {}
  virtual void update(std::size_t slice, double learning_rate) = 0;

  // In the same order every time; gradients may have moved since the last.
  std::span<const model::HeldSlice> slices() const { return store_.updates(); }
  const Settings& settings() const { return settings_; }
  const model::Store& store() const { return store_; }

 private:
  const model::Store& store_;
  Settings settings_;
  Squares squares_;
  at::Tensor control_, scale_;
};

// The method that settings.method names, over what this rank updates of the store, which must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const model::Store& store, const Settings& settings);
std::unique_ptr<Optimizer> make_optimizer(const config::RunConfig& config, const model::Store& store, double nominal_tokens);

}  // namespace lockstep::optim
