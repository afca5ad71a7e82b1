// What is trained: how its data is opened, what a batch is, the loss of one, what is measured and shown. The loop, the step and benchmarks
// know no more of it than this.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/flops.h"
#include "rank/data/batch.h"
#include "rank/model/stage.h"
#include "rank/model/sums/totals.h"
#include "journal/metrics.h"

namespace lockstep::task {

// Writes what shows how far a model is. Made by Task::make_sampler; one thread.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // What samples begin with, one each; the same on every rank.
  virtual const std::vector<std::string>& prompts() const = 0;
  // What it needs is read beside training. Cheap: where that has failed, this throws, long before the first sample is due.
  virtual void look() = 0;
  // The samples of these prompts.
  virtual std::vector<std::string> write(model::Stage& model, std::span<const std::size_t> prompts) = 0;
};

// Makes the choices of this rank those of the first one, where ranks write together: they may multiply by different algorithms, and a last
// bit decides a draw. Collective.
using Follow = std::function<void(const at::Tensor& choices)>;

class Task {
 public:
  virtual ~Task() = default;

  virtual std::shared_ptr<const data::Source> training() const = 0;
  virtual std::shared_ptr<const data::Source> validation() const = 0;  // null: none
  virtual const std::string& description() const = 0;                  // of the data: "built-in stories, 1.2M tokens"

  // A batch of full samples that is not in the data: random, or with nothing to train, so that gradients are zero.
  virtual data::Batch make_up(std::int64_t samples, at::Device device, bool trains) const = 0;
  // What Batch::trained counts, in the plural: "tokens".
  virtual std::string counted() const = 0;
  // Operations of one of them. Where samples differ in length, of matrices alone: a lower bound.
  virtual layout::Flops flops() const = 0;

  // The model that is trained, over units that its family lays out; the store must outlive it. Stages below are what this made.
  virtual std::unique_ptr<model::Stage> make_model(model::Store& store) const = 0;

  // A micro-batch up to its loss, in a flight of the stage; Stage::backward() of the same flight makes loss and gradients.
  virtual void forward(model::Stage& stage, std::size_t flight, const data::Batch& batch, const model::Micro& micro) const = 0;

  // Sums of an evaluation; score() adds a batch's to them, without gradients, and evaluated() says what they mean.
  virtual std::vector<model::Sum> evaluation_sums() const = 0;
  virtual void score(model::Stage& stage, const data::Batch& batch, model::Totals& totals) const = 0;
  virtual journal::EvalLine evaluated(const model::Totals& totals, std::span<const double> numbers) const = 0;

  // Null where there is nothing to write with. writes: this rank will write some, so it reads what that takes.
  virtual std::unique_ptr<Sampler> make_sampler(bool writes, at::Device device, const Follow& follow) const = 0;
};

// How ranks come to know the data. Empty: each reads it. Else only the first rank does, and gives the others a text: called on every
// rank, it calls `mine` on the first and returns what that said on all.
using FromFirst = std::function<std::string(const std::function<std::string()>& mine)>;

// The task of a run's settings, its data opened and prepared. Throws UserError(ExitCode::data).
std::unique_ptr<Task> open_task(const config::RunConfig& config, const FromFirst& from_first = {});

}  // namespace lockstep::task
