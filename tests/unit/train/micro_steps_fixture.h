// What tests of micro-steps share: a tiny model with everything that trains it, and recorders that count.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "rank/comm/transport.h"
#include "rank/data/text_source.h"
#include "rank/model/model.h"
#include "rank/optim/optim.h"
#include "rank/parallel/gradient_sync.h"
#include "rank/train/make_model.h"
#include "rank/train/step/micro_steps.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::train {

inline constexpr std::int64_t batch_size = 4, time_steps = 16, steps = 20, warm_up = 3;

// What happened to a recorder's graphs; outlives them.
struct Tally {
  int recorded = 0, launched = 0;
};

// Counts; on a CPU a graph calls its work again. `spoil` runs at the end of each recording.
class CountingRecorder final : public kernels::GraphRecorder {
 public:
  CountingRecorder(at::Device device, Tally& tally, std::function<void()> spoil = {})
      : real_(kernels::make_graph_recorder(device)), tally_(tally), spoil_(std::move(spoil)) {}

  std::unique_ptr<kernels::Graph> record(const std::function<void()>& work) override {
    ++tally_.recorded;
    if (!real_ && spoil_) spoil_();
    auto graph = real_ ? real_->record([&] {
      work();
      if (spoil_) spoil_();
    })
                       : nullptr;
    return std::make_unique<Counted>(std::move(graph), work, tally_);
  }

 private:
  class Counted final : public kernels::Graph {
   public:
    Counted(std::unique_ptr<kernels::Graph> graph, std::function<void()> work, Tally& tally)
        : graph_(std::move(graph)), work_(std::move(work)), tally_(tally) {}
    void launch() override {
      ++tally_.launched;
      graph_ ? graph_->launch() : work_();
    }

   private:
    std::unique_ptr<kernels::Graph> graph_;
    std::function<void()> work_;
    Tally& tally_;
  };
  std::unique_ptr<kernels::GraphRecorder> real_;
  Tally& tally_;
  std::function<void()> spoil_;
};

inline config::RunConfig tiny() {
  config::RunConfig c;
  c.model = config::with_defaults({.hidden_size = 64,
                                   .num_layers = 3,
                                   .num_heads = 4,
                                   .kv_heads = 2,
                                   .intermediate_size = 96,
                                   .vocab_size = 96,
                                   .max_seq_len = 128,
                                   .initializer_range = 0.08});
  c.data.kind = config::DataKind::random;
  c.data.random_tokens = 4000;
  c.data.seq_len = time_steps;
  return c;
}

// A model with everything that trains it.
struct Training {
  explicit Training(const config::RunConfig& run, std::shared_ptr<comm::Transport> transport = comm::make_single_transport())
      : config(run),
        ranks("world", device, std::move(transport), std::make_shared<journal::PageWriter>("", 0)),
        task(task::open_task(config)),
        replica(make_units(config, device)),
        model(task->make_model(*replica.store)),
        sync(replica.gradients.front().memory, *replica.store, config.parallel),
        optimizer(optim::make_optimizer(config, *replica.store, double(batch_size * time_steps))) {
    choose_precision(config, *model, device);
    initialize_weights(config, replica);
    initialize_adapters(config, replica, *model);
  }

  void use(MicroSteps::Options options) { micro_steps = std::make_unique<MicroSteps>(*task, *model, sync, ranks, std::move(options)); }
  void use(std::unique_ptr<kernels::GraphRecorder> recorder) { use({.recorder = std::move(recorder), .warm_up = warm_up}); }

  model::Decoder& decoder() const { return model::Decoder::of(*model); }

  data::Batch batch(int seed, std::int64_t rows = batch_size, std::int64_t time = time_steps) const {
    const auto made = test::random_batch({.vocab = config.model.vocab_size, .batch = rows, .time = time, .ignored = 5}, seed, device);
    data::TextFields fields{.tokens = made.tokens, .targets = made.targets};
    if (config.lora.dropout > 0) fields.keys = at::full({rows}, 17 + seed, made.tokens.options());
    return data::batch_of(fields);
  }

  // One step: micro-batches, reduction, update. Losses are kept.
  void step(const std::vector<data::Batch>& batches) {
    at::Tensor sum = at::zeros({}, at::TensorOptions().device(device).dtype(at::kDouble));
    for (const data::Batch& batch : batches) {
      micro_steps->forward(batch, optimizer->scale(), {.first = &batch == &batches.front(), .last = &batch == &batches.back()});
      const at::Tensor loss = micro_steps->backward();
      sum += loss;
      losses.push_back(loss.item<double>());
    }
    sync.finish(ranks);
    optimizer->finish_gradients(optimizer->sum_of_squares(), at::full({}, double(batch_size * time_steps), sum.options()), sum);
    optimizer->step(1e-2);
  }

  at::Device device = test::device();
  config::RunConfig config;
  comm::Group ranks;
  std::unique_ptr<task::Task> task;
  parallel::Replica replica;
  std::unique_ptr<model::Stage> model;
  parallel::GradientSync sync;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<MicroSteps> micro_steps;
  std::vector<double> losses;
};

inline void expect_same_bits(const Training& a, const Training& b) {
  EXPECT_EQ(a.losses, b.losses);
  const auto first = a.replica.trained_in_forward_order(), second = b.replica.trained_in_forward_order();
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(at::equal(first[i]->exact(), second[i]->exact())) << "weights of " << first[i]->name();
}

// Memory that was given back is written over, so that whoever still reads it gets what is no number.
inline void poison_free_memory(at::Device device) {
  if (device.is_cpu()) return;
  std::vector<at::Tensor> all;
  for (int i = 0; i < 64; ++i)
    for (const std::int64_t numbers : {64, 1024, 16 * 1024, 256 * 1024})
      all.push_back(at::full({numbers}, NAN, at::TensorOptions().device(device)));
}

}  // namespace lockstep::train
