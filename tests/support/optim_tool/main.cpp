// Lets the parity test drive our optimizers: `optim_tool IN.safetensors JOB.json OUT.safetensors` takes weights and the gradients of
// several steps, and gives back the weights and states they lead to. JOB: method, steps, rates (one a step), settings, leaves (lists
// of names that are stacked into one parameter), dtype and masters.
#include <cstdio>
#include <fstream>

#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "config/config.h"
#include "rank/checkpoint/safetensors.h"
#include "rank/optim/optim.h"
#include "rank/model/weights/whole_store.h"
#include "support/safetensors_tool/write_safetensors.h"

namespace lockstep::optim {
namespace {

using Json = nlohmann::json;

at::Tensor read(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const checkpoint::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw base::usage_error("optim_tool", "there is no tensor {}", name);
  return at::from_blob(const_cast<std::byte*>(file.bytes(*entry).data()), entry->shape, at::TensorOptions().dtype(entry->dtype)).clone();
}

model::UnitSpec spec_of(const Json& job, const checkpoint::SafetensorsFile& file) {
  model::UnitSpec spec{.name = "unit", .leaves = {}};
  for (const bool decay : {true, false}) {  // as units have them: matrices first
    for (const auto& names : job.at("leaves")) {
      model::LeafSpec leaf{.name = names.at(0), .pieces = {}, .decay = decay};
      for (const std::string name : names) leaf.pieces.push_back({name, file.find("weight." + name)->shape});
      if (leaf.name.starts_with("embed")) leaf.role = model::Role::token_embedding;
      if (leaf.name.starts_with("adapter_b")) leaf.role = model::Role::adapter_b;
      if ((leaf.pieces.front().shape.size() == 2) == decay) spec.leaves.push_back(leaf);
    }
  }
  return spec;
}

Settings settings_of(const Json& job) {
  Settings s{.max_grad_norm = 0};
  const std::string method = job.at("method");
  for (const auto one : {config::Optimizer::adamw, config::Optimizer::adamw_8bit, config::Optimizer::sgd, config::Optimizer::lion,
                         config::Optimizer::adafactor, config::Optimizer::muon}) {
    if (config::name_of(one) == method) s.method = one;
  }
  const std::pair<const char*, double*> numbers[] = {{"beta1", &s.beta1},
                                                     {"beta2", &s.beta2},
                                                     {"epsilon", &s.epsilon},
                                                     {"weight_decay", &s.weight_decay},
                                                     {"momentum", &s.momentum},
                                                     {"muon_momentum", &s.muon_momentum},
                                                     {"max_grad_norm", &s.max_grad_norm},
                                                     {"embedding_rate", &s.embedding_rate},
                                                     {"adapter_b_rate", &s.adapter_b_rate}};
  for (const auto& [key, number] : numbers) *number = job.value(key, *number);
  return s;
}

void run(const std::filesystem::path& in, const std::filesystem::path& job_path, const std::filesystem::path& out) {
  const checkpoint::SafetensorsFile file(in);
  const Json job = Json::parse(base::read_text(job_path));
  const auto dtype = job.value("dtype", "f32") == "bf16" ? at::kBFloat16 : at::kFloat;
  model::Unit unit(spec_of(job, file), {.weight_dtype = dtype, .gradient_dtype = dtype, .master = job.value("masters", true)});
  for (const auto& [name, view] : unit.pieces_of(unit.exact())) view.copy_(read(file, "weight." + name));
  unit.refresh_weights();
  const model::WholeStore store({&unit});
  const auto optimizer = make_optimizer(store, settings_of(job));
  const auto one = at::ones({}, at::kDouble);
  const auto& rates = job.at("rates");
  for (std::size_t step = 0; step < rates.size(); ++step) {
    for (const auto& [name, view] : unit.pieces_of(unit.gradients())) view.copy_(read(file, fmt::format("gradient.{}.{}", step, name)));
    optimizer->finish_gradients(optimizer->sum_of_squares(), one, one);
    optimizer->step(rates[step]);
  }
  std::vector<checkpoint::NamedTensor> contents;
  for (const auto& [name, view] : unit.pieces_of(unit.exact())) contents.push_back({"weight." + name, view});
  for (const auto& [name, view, shape, begin] : optimizer->named_state()) contents.push_back({name, view});
  support::write_safetensors(out, contents);
}

}  // namespace
}  // namespace lockstep::optim

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: optim_tool IN.safetensors JOB.json OUT.safetensors\n"), 2;
  try {
    lockstep::optim::run(argv[1], argv[2], argv[3]);
  } catch (const lockstep::base::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
