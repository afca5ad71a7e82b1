// The task of a language model: predicting the next token of texts and of records.
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "corpus/formats/language.h"
#include "rank/data/outline.h"
#include "rank/data/text_source.h"
#include "rank/model/model.h"
#include "rank/model/projection/adapter.h"
#include "rank/task/language/sampler.h"
#include "rank/task/task.h"

namespace lockstep::task {
namespace {

constexpr std::string_view kLoss = "loss", kTrained = "trained", kCorrect = "correct";

model::Input input_of(const data::Batch& batch) {
  const data::TextFields fields = data::text(batch);
  return {.tokens = fields.tokens, .targets = fields.targets, .starts = fields.starts, .keys = fields.keys};
}

class NextToken final : public Task {
 public:
  NextToken(const config::RunConfig& config, data::Dataset dataset) : config_(config), dataset_(std::move(dataset)) {
    const bool keys = model::adapters_drop(config.lora);
    training_ = data::text_source(dataset_.training, config.trainer.seed, keys);
    if (dataset_.validation) validation_ = data::text_source(dataset_.validation, config.trainer.seed, /*keys=*/false);
  }

  std::shared_ptr<const data::Source> training() const override { return training_; }
  std::shared_ptr<const data::Source> validation() const override { return validation_; }
  const std::string& description() const override { return dataset_.description; }

  data::Batch make_up(std::int64_t samples, at::Device device, bool trains) const override {
    const auto kind = at::TensorOptions().dtype(at::kLong);
    const std::int64_t time = training_->sample_size();
    const at::Tensor row =
        (trains ? at::randint(config_.model.vocab_size, {samples, time + 1}, kind) : at::zeros({samples, time + 1}, kind)).to(device);
    // A copy: of one sample both would be views of the same row.
    data::TextFields fields{.tokens = row.narrow(1, 0, time).contiguous(),
                            .targets = row.narrow(1, 1, time).clone(at::MemoryFormat::Contiguous)};
    if (!trains) fields.targets.fill_(data::untrained);
    if (model::adapters_drop(config_.lora)) fields.keys = row.select(1, 0).contiguous();
    return data::batch_of(fields, trains ? samples * time : 0);
  }

  std::string counted() const override { return "tokens"; }
  layout::Flops flops() const override {
    const data::Corpus& corpus = *dataset_.training;
    const bool whole_samples = corpus.fixed_length() && !corpus.packed();
    return layout::flops_per_token(config_.model, config_.lora, whole_samples ? corpus.seq_len() : 0);
  }

  std::unique_ptr<model::Stage> make_model(model::Store& store) const override {
    return std::make_unique<model::Decoder>(config_.model, config_.lora, store);
  }
  void forward(model::Stage& stage, std::size_t flight, const data::Batch& batch, const model::Micro& micro) const override {
    model::Decoder::of(stage).forward(input_of(batch), micro, flight);
  }

  std::vector<model::Sum> evaluation_sums() const override {
    return {{std::string(kLoss)}, {std::string(kTrained)}, {std::string(kCorrect)}};
  }
  void score(model::Stage& stage, const data::Batch& batch, model::Totals& totals) const override {
    const model::Score score = model::Decoder::of(stage).score(input_of(batch));
    totals.add(kLoss, score.loss);
    totals.add(kCorrect, score.correct);
    totals.add(kTrained, static_cast<double>(batch.trained));
  }
  journal::EvalLine evaluated(const model::Totals& totals, std::span<const double> numbers) const override {
    const double tokens = totals.read(numbers, kTrained);
    const double loss = tokens > 0 ? totals.read(numbers, kLoss) / tokens : 0;
    return {.loss = loss,
            .measures = {{"perplexity", std::exp(loss)},
                         {"accuracy", tokens > 0 ? totals.read(numbers, kCorrect) / tokens : 0}},  // share of likeliest tokens
            .counted = counted(),
            .trained = static_cast<std::int64_t>(tokens)};
  }

  std::unique_ptr<Sampler> make_sampler(bool writes, at::Device device, const Follow& follow) const override {
    if (!dataset_.language || config_.monitor.sample_tokens == 0) return nullptr;
    return make_text_sampler(config_, dataset_.language, writes, device, follow);
  }

 private:
  config::RunConfig config_;
  data::Dataset dataset_;
  std::shared_ptr<const data::Source> training_, validation_;
};

data::Dataset open_data(const config::RunConfig& config, const FromFirst& from_first) {
  data::Dataset whole;
  const auto open = [&] { whole = data::open_dataset(config.data, config.model, config.trainer.seed); };
  if (!from_first) {
    open();
    return whole;
  }
  const std::string outline = from_first([&] {
    open();
    return data::outline_of(whole);
  });
  if (whole.training) return whole;
  data::Dataset known = data::dataset_of_outline(outline);
  known.language = corpus::language_of(config.data, config.model);
  return known;
}

}  // namespace

std::unique_ptr<Task> open_task(const config::RunConfig& config, const FromFirst& from_first) {
  return std::make_unique<NextToken>(config, open_data(config, from_first));
}

}  // namespace lockstep::task
