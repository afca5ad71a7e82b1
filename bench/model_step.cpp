// Tokens a second of one training step: the decoder's forward and backward, AdamW, and the same model in plain autograd.
//   model_step [--model nano|qwen-0.5b|qwen-1.5b|llama-1b|gpt] [--device cpu|cuda] [--dtype f32|bf16|f16] [--gradients f32|bf16|f16]
//              [--keep all|matmuls|without_qkv|input] [--batch N] [--time N] [--threads N] [--steps N] [--reference 0|1]
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "rank/kernels/plugin.h"
#include "rank/kernels/session.h"
#include "rank/model/model.h"
#include "rank/model/weights/whole_store.h"
#include "rank/optim/optim.h"
#include "support/reference/reference_decoder.h"

namespace {

using namespace lockstep;

config::ModelConfig shape(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv, std::int64_t intermediate,
                          std::int64_t vocab, bool tied, bool bias) {
  config::ModelConfig c;
  c.hidden_size = hidden;
  c.num_layers = layers;
  c.num_heads = heads;
  c.kv_heads = kv;
  c.intermediate_size = intermediate;
  c.vocab_size = vocab;
  c.tie_embeddings = tied;
  c.qkv_bias = bias;
  return c;
}

const std::map<std::string, config::ModelConfig> kModels = {
    {"nano", shape(384, 6, 6, 2, 1024, 1024, true, false)},          {"gpt", shape(768, 12, 12, 12, 2048, 50304, true, false)},
    {"qwen-0.5b", shape(896, 24, 14, 2, 4864, 151936, true, true)},  {"qwen-1.5b", shape(1536, 28, 12, 2, 8960, 151936, true, true)},
    {"llama-1b", shape(2048, 16, 32, 8, 8192, 128256, true, false)},
};
const std::map<std::string, at::ScalarType> kTypes = {{"f32", at::kFloat}, {"bf16", at::kBFloat16}, {"f16", at::kHalf}};
const std::map<std::string, model::Recompute> kKeep = {{"all", model::Recompute::none},
                                                       {"matmuls", model::Recompute::norms},
                                                       {"without_qkv", model::Recompute::qkv},
                                                       {"input", model::Recompute::blocks}};

// The first two rounds make buffers and plans; they are left out.
double median_seconds(int steps, const at::Device& device, const std::function<void()>& body) {
  const auto wait = [&] {
    if (device.is_cuda()) kernels::cuda_plugin().synchronize(device.index());
  };
  std::vector<double> seconds;
  for (int i = 0; i < steps + 2; ++i) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    body();
    wait();
    if (i >= 2) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + steps / 2, seconds.end());
  return seconds[steps / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> arg{{"--model", "nano"}, {"--device", "cpu"}, {"--dtype", "f32"}, {"--gradients", ""},
                                         {"--keep", "all"},   {"--batch", "8"},    {"--time", "128"},  {"--threads", "1"},
                                         {"--steps", "15"},   {"--reference", "1"}};
  for (int i = 1; i + 1 < argc; i += 2) arg.at(argv[i]) = argv[i + 1];
  at::set_num_threads(std::atoi(arg["--threads"].c_str()));
  const auto batch = std::atoll(arg["--batch"].c_str()), time = std::atoll(arg["--time"].c_str());
  const int steps = std::atoi(arg["--steps"].c_str());
  at::Device device(at::kCPU);
  if (arg["--device"] == "cuda") {
    kernels::cuda_plugin().set_allocator("expandable_segments:True");
    device = at::Device(at::kCUDA, 0);
  }
  const kernels::Session session(device, /*deterministic=*/false);
  auto config = kModels.at(arg["--model"]);
  config.max_seq_len = time;
  const auto dtype = kTypes.at(arg["--dtype"]);
  const auto gradients = arg["--gradients"].empty() ? dtype : kTypes.at(arg["--gradients"]);

  std::vector<std::unique_ptr<model::Unit>> units;
  std::vector<model::Unit*> list;
  std::int64_t parameters = 0;
  for (auto& spec : model::decoder_units(config)) {
    units.push_back(
        std::make_unique<model::Unit>(spec, model::UnitStorage{.device = device, .weight_dtype = dtype, .gradient_dtype = gradients}));
    list.push_back(units.back().get());
    parameters += units.back()->elements();
  }
  model::initialize(units, 1);
  model::Decoder decoder(config, list, kKeep.at(arg["--keep"]));
  const auto tokens = at::randint(0, config.vocab_size, {batch, time}, at::kLong).to(device);
  const auto targets = at::randint(0, config.vocab_size, {batch, time}, at::kLong).to(device);
  const double count = double(batch * time);
  const model::WholeStore store(list);
  const auto optimizer = optim::make_optimizer(store, {.nominal_tokens = count});
  const auto token_count = at::full({}, count, at::kDouble).to(device);

  const double ours = median_seconds(steps, device, [&] { decoder.forward_backward(tokens, targets, optimizer->scale()); });
  const double flops = layout::flops_per_token(config, {}, time).total() * count;
  std::printf("%s, %.1fM parameters, %s, batch %lld x %lld\n", arg["--model"].c_str(), parameters * 1e-6, arg["--dtype"].c_str(),
              (long long)batch, (long long)time);
  std::printf("forward+backward %9.0f tokens/s  %8.2f ms  %8.1f GFLOP/s\n", count / ours, ours * 1e3, flops / ours * 1e-9);
  at::Tensor loss;
  const double whole = median_seconds(steps, device, [&] {
    loss = decoder.forward_backward(tokens, targets, optimizer->scale());
    optimizer->finish_gradients(optimizer->sum_of_squares(), token_count, loss);
    optimizer->step(1e-4);
  });
  std::printf("with update      %9.0f tokens/s  %8.2f ms  loss %.4f\n", count / whole, whole * 1e3, loss.item<double>() / count);
  if (device.is_cuda())
    std::printf("peak memory      %.2f GiB\n", double(kernels::cuda_plugin().peak_memory_bytes(device.index())) / (1 << 30));
  if (arg["--reference"] == "0") return 0;

  auto copies = reference::copy_parameters(list, dtype);
  const double plain = median_seconds(steps, device, [&] {
    for (auto& [name, parameter] : copies) parameter.mutable_grad().reset();
    (reference::loss_sum(config, copies, tokens, targets) * (1.0 / count)).backward();
  });
  std::printf("plain autograd   %9.0f tokens/s  %8.2f ms  ratio %.2f\n", count / plain, plain * 1e3, plain / ours);
}
