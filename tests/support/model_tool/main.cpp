// Lets the parity tests look inside: loads a model folder, runs tokens through it, writes logits, the loss and every gradient.
#include <cstdio>
#include <map>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>

#include "base/error.h"
#include "base/files.h"
#include "config/model_folder.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/hub/hub_folder.h"
#include "rank/model/model.h"
#include "support/safetensors_tool/write_safetensors.h"

namespace lockstep {
namespace {

at::Tensor read(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  base::check(entry != nullptr && entry->dtype == at::kLong, "tokens and targets are I64");
  return at::from_blob(const_cast<std::byte*>(file.bytes(*entry).data()), entry->shape, at::kLong).clone();
}

// in: "tokens" and "targets", [batch, time] I64. out: "logits", "loss" (summed) and "grad.NAME" by Hugging Face's names, f32.
void run(const std::filesystem::path& folder, const std::filesystem::path& in, const std::filesystem::path& out) {
  const config::ModelConfig config = config::read_model_folder(folder).model;
  std::vector<std::unique_ptr<model::Unit>> units;
  std::vector<model::Unit*> order;
  for (model::UnitSpec& spec : model::decoder_units(config)) {
    units.push_back(std::make_unique<model::Unit>(std::move(spec), model::UnitStorage{}));
    order.push_back(units.back().get());
  }
  for (const std::string& note : hub::load_units(hub::HubFolder(folder), units).notes) std::printf("%s\n", note.c_str());
  model::Decoder decoder(config, order);
  const checkpoint::SafetensorsFile input(in);
  const at::Tensor tokens = read(input, "tokens"), targets = read(input, "targets");
  std::vector<checkpoint::NamedTensor> contents;
  contents.push_back({"logits", decoder.logits(tokens).to(at::kFloat)});
  contents.push_back({"loss", decoder.forward_backward(tokens, targets, at::ones({}))});
  for (const auto& unit : units) {
    for (auto& [name, view] : unit->pieces_of(unit->gradients())) contents.push_back({"grad." + name, view});
  }
  support::write_safetensors(out, contents);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: model_tool DIR tokens.safetensors out.safetensors\n"), 2;
  try {
    lockstep::run(argv[1], argv[2], argv[3]);
  } catch (const lockstep::base::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
