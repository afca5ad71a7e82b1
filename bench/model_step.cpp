// Tokens a second of one training step's forward and backward: the decoder against the same model in plain autograd.
//   model_step [--layers N --hidden N --heads N --kv N --vocab N --batch N --time N --threads N --steps N --no-reference]
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>

#include "rank/model/model.h"
#include "rank/optim/optim.h"
#include "support/reference/reference_decoder.h"

namespace {

using namespace lockstep;

double median_seconds(int steps, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < steps + 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i >= 2) seconds.push_back(spent);  // the first two make buffers
  }
  std::nth_element(seconds.begin(), seconds.begin() + steps / 2, seconds.end());
  return seconds[steps / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::int64_t> arg{{"--layers", 6}, {"--hidden", 384}, {"--heads", 6},   {"--kv", 2},     {"--vocab", 1024},
                                          {"--batch", 8},  {"--time", 128},   {"--threads", 1}, {"--steps", 15}, {"--reference", 1}};
  for (int i = 1; i + 1 < argc; i += 2) arg[argv[i]] = std::atoll(argv[i + 1]);
  at::set_num_threads(int(arg["--threads"]));
  config::ModelConfig config;
  config.hidden_size = arg["--hidden"];
  config.num_layers = arg["--layers"];
  config.num_heads = arg["--heads"];
  config.kv_heads = arg["--kv"];
  config.vocab_size = arg["--vocab"];
  config.max_seq_len = arg["--time"];

  std::vector<std::unique_ptr<model::Unit>> units;
  std::vector<model::Unit*> list;
  for (auto& spec : model::decoder_units(config)) {
    units.push_back(std::make_unique<model::Unit>(spec, model::UnitStorage{}));
    list.push_back(units.back().get());
  }
  model::initialize(units, 1);
  model::Decoder decoder(config, list);
  const auto tokens = at::randint(0, config.vocab_size, {arg["--batch"], arg["--time"]}, at::kLong);
  const auto targets = at::randint(0, config.vocab_size, {arg["--batch"], arg["--time"]}, at::kLong);
  const double count = double(tokens.numel());
  optim::AdamW adamw(list, {.nominal_tokens = count});
  const int steps = int(arg["--steps"]);

  const double ours = median_seconds(steps, [&] { decoder.forward_backward(tokens, targets, adamw.scale()); });
  const double flops = model::flops_per_token(config, arg["--time"]) * count;
  std::printf("decoder    %9.0f tokens/s  %7.1f ms  %6.1f GFLOP/s\n", count / ours, ours * 1e3, flops / ours * 1e-9);
  const double update = median_seconds(steps, [&] {
    adamw.finish_gradients(adamw.sum_of_squares(), at::full({}, count), at::zeros({}));
    adamw.step(1e-3);
  });
  std::printf("adamw      %7.1f ms\n", update * 1e3);
  if (arg["--reference"] == 0) return 0;

  auto parameters = reference::copy_parameters(list);
  const double plain = median_seconds(steps, [&] {
    for (auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
    (reference::loss_sum(config, parameters, tokens, targets) * (1.0 / count)).backward();
  });
  std::printf("autograd   %9.0f tokens/s  %7.1f ms\nratio      %.2f\n", count / plain, plain * 1e3, plain / ours);
}
