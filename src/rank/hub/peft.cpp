// Adapters in PEFT's files.
#include "rank/hub/peft.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <fmt/ranges.h>

#include <set>

#include "base/error.h"
#include "base/file/replace_folder.h"
#include "base/text.h"
#include "config/adapter/fit.h"
#include "config/adapter/folder.h"
#include "rank/model/projection/adapter.h"

namespace lockstep::hub {

using checkpoint::dtype_name;
using checkpoint::lay_out;
using checkpoint::safetensors_header;
using checkpoint::TensorEntry;

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kWeight = ".weight";

// "model.layers.0.mlp.up_proj.weight" -> "base_model.model.model.layers.0.mlp.up_proj"
std::string module_of(const std::string& weight_name) {
  return std::string(kPrefix) + weight_name.substr(0, weight_name.size() - kWeight.size());
}

std::string bracketed(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

PeftAdapter::PeftAdapter(const fs::path& folder)
    : folder_(folder), lora_(config::read_adapter_folder(folder)), targets_(lora_), file_(config::adapter_weights_file(folder)) {
  for (const TensorEntry& entry : file_.entries()) {
    if (entry.dtype != at::kFloat && entry.dtype != at::kBFloat16 && entry.dtype != at::kHalf)
      throw base::checkpoint_error("lora", "{}: tensor {} is {}; adapters are f32, bf16 or f16.", file_.path().string(), entry.name,
                                   dtype_name(entry.dtype));
  }
}

at::Tensor PeftAdapter::tensor(const TensorEntry& entry) const {
  const auto bytes = file_.bytes(entry);
  at::Tensor copy = at::empty(entry.shape, entry.dtype);  // the file's bytes need not be aligned
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(copy.data_ptr()));
  return copy.to(at::kFloat);
}

void PeftAdapter::load(const std::vector<std::unique_ptr<model::Unit>>& adapters) const {
  std::set<std::string> known;
  for (const auto& unit : adapters) {
    if (!unit) continue;
    for (const auto& [name, view] : unit->pieces_of(unit->exact())) {
      const TensorEntry* entry = file_.find(name);
      if (entry == nullptr) throw base::checkpoint_error("lora", "{}: tensor {} is missing.", file_.path().string(), name);
      if (entry->shape != view.sizes().vec())
        throw base::checkpoint_error("lora", "{}: tensor {} is {}, the model needs {}. The adapter belongs to another model.",
                                     file_.path().string(), name, bracketed(entry->shape), bracketed(view.sizes().vec()));
      view.copy_(tensor(*entry));
      known.insert(name);
    }
    unit->refresh_weights();
  }
  for (const TensorEntry& entry : file_.entries()) {
    if (!known.contains(entry.name))
      throw base::checkpoint_error("lora", "{}: tensor {} belongs to no matrix of this model.", file_.path().string(), entry.name);
  }
}

at::Tensor PeftAdapter::folded(const std::string& name, const at::Tensor& given) const {
  if (!name.ends_with(kWeight)) return given;
  const auto misfit = [&] {
    return base::checkpoint_error("lora", "{}: the adapter of {} does not fit its matrix {}. The adapter belongs to another model.",
                                  file_.path().string(), name, bracketed(given.sizes().vec()));
  };
  const auto whole = [&](const std::string& stored) {
    const TensorEntry* entry = file_.find(stored);
    if (entry != nullptr && entry->shape != given.sizes().vec()) throw misfit();
    return entry != nullptr ? tensor(*entry) : at::Tensor();
  };
  if (const at::Tensor trained = whole(std::string(kPrefix) + name); trained.defined()) return trained;
  const std::string module = module_of(name), plain = module.substr(kPrefix.size());
  const at::Tensor own_base = whole(module + ".base_layer.weight");  // PEFT saves what it adapted of embedding and head
  const at::Tensor& weight = own_base.defined() ? own_base : given;
  const bool embedding = plain == layout::embedding_module;
  const TensorEntry* a = file_.find(module + (embedding ? ".lora_embedding_A" : ".lora_A.weight"));
  const TensorEntry* b = file_.find(module + (embedding ? ".lora_embedding_B" : ".lora_B.weight"));
  if (a == nullptr && b == nullptr) return weight;
  const std::int64_t out = weight.size(embedding ? 1 : 0), in = weight.size(embedding ? 0 : 1), rank = targets_.rank(plain);
  if (a == nullptr || b == nullptr || a->shape != std::vector<std::int64_t>{rank, in} || b->shape != std::vector<std::int64_t>{out, rank})
    throw misfit();
  at::Tensor sum = weight.to(at::kCPU, at::kFloat).clone();
  at::Tensor outputs = embedding ? sum.t() : sum;  // [out, in]
  outputs.addmm_(tensor(*b), tensor(*a), 1, targets_.scale(plain));
  if (!lora_.dora) return sum;
  const TensorEntry* magnitude = file_.find(module + ".lora_magnitude_vector");
  if (magnitude == nullptr || magnitude->shape != std::vector<std::int64_t>{out})
    throw base::checkpoint_error("lora", "{}: {} uses DoRA, but its magnitude vector is missing or misshapen.", file_.path().string(),
                                 name);
  outputs.mul_(tensor(*magnitude).div(at::linalg_vector_norm(outputs, 2, {1})).unsqueeze(1));
  return sum;
}

std::vector<std::string> PeftAdapter::touched() const {
  std::set<std::string> names;
  for (const TensorEntry& entry : file_.entries()) {
    std::string name = entry.name;
    if (!name.starts_with(kPrefix)) throw base::checkpoint_error("lora", "{}: {} is no PEFT name.", file_.path().string(), name);
    name.erase(0, kPrefix.size());
    for (const std::string_view part :
         {".lora_A.weight", ".lora_B.weight", ".lora_embedding_A", ".lora_embedding_B", ".lora_magnitude_vector", ".base_layer.weight"}) {
      if (name.ends_with(part)) name = name.substr(0, name.size() - part.size()) + std::string(kWeight);
    }
    names.insert(std::move(name));
  }
  return {names.begin(), names.end()};
}

void write_peft_folder(base::FileSystem& files, const fs::path& folder, const config::LoraConfig& lora, const std::string& base,
                       const std::vector<const model::Unit*>& adapters) {
  const fs::path partial = folder.string() + ".partial";
  files.remove_all(partial);
  files.create_directories(partial);
  std::vector<model::Unit::NamedView> views;
  for (const model::Unit* unit : adapters) {
    for (auto& view : unit->pieces_of(unit->exact())) views.push_back(std::move(view));
  }
  std::vector<TensorEntry> entries;
  for (const auto& [name, view] : views) entries.push_back({.name = name, .dtype = at::kFloat, .shape = view.sizes().vec()});
  lay_out(entries);  // one type: the order stays
  const std::string header = safetensors_header(entries, {{"format", "pt"}});
  const auto writer = files.create(partial / "adapter_model.safetensors");
  writer->write(std::as_bytes(std::span(header)));
  for (const auto& [name, view] : views) {
    const at::Tensor host = view.to(at::kCPU, at::kFloat).contiguous();
    writer->write({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  writer->sync_and_close();
  base::write_text_atomically(files, partial / "adapter_config.json", config::adapter_config_text(lora, base));
  files.sync_directory(partial);
  const fs::path replaced = folder.string() + ".replaced";
  files.remove_all(replaced);
  if (base::replace_folder(files, partial, folder, replaced)) files.remove_all(replaced);
}

}  // namespace lockstep::hub
