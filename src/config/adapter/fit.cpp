// Names every tensor that an adapter must have beside this model, and compares.
#include "config/adapter/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/file/safetensors.h"
#include "base/text.h"
#include "config/adapter/folder.h"
#include "layout/adapters/adapter_targets.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "base_model.model.";  // PEFT wraps the model twice

constexpr std::string_view merge_it = "Fold it into the model (`lockstep merge`), and use the folder that it writes.";

using Shape = std::vector<std::int64_t>;
std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

class Fit {
 public:
  Fit(const fs::path& folder, const ModelConfig& model, AdapterUse use)
      : folder_(folder), model_(model), use_(use), lora_(read_adapter_folder(folder)), targets_(lora_) {}

  void check() {
    const std::vector<layout::Module> modules = layout::modules_of(model_);
    const auto touched = [&](const layout::Module& module) { return targets_.contains(module.name) || targets_.saves(module.name); };
    if (std::none_of(modules.begin(), modules.end(), touched)) {
      throw misfit(
          fmt::format("its target_modules ({}) name no matrix of this model, which has q_proj, k_proj, v_proj, o_proj, gate_proj, "
                      "up_proj and down_proj in its blocks, embed_tokens and lm_head",
                      base::join(lora_.target_modules, ", ")));
    }
    if (use_ != AdapterUse::merge) refuse_modules_trained_whole();
    for (const layout::Module& module : modules) expect(module);
    compare();
    if (use_ != AdapterUse::merge) refuse_what_only_merges(modules);
  }

 private:
  void expect(const layout::Module& module) {
    const std::string name = std::string(prefix) + module.name;
    const bool in_block = layout::is_in_block(module.name);
    if (targets_.saves(module.name) && !in_block) needed_[name + ".weight"] = {module.out, module.in};
    if (!targets_.contains(module.name)) return;
    const std::int64_t rank = targets_.rank(module.name);
    if (module.name == layout::embedding_module) {
      needed_[name + ".lora_embedding_A"] = {rank, module.out};
      needed_[name + ".lora_embedding_B"] = {module.in, rank};
    } else {
      needed_[name + ".lora_A.weight"] = {rank, module.in};
      needed_[name + ".lora_B.weight"] = {module.out, rank};
    }
    if (lora_.dora) needed_[name + ".lora_magnitude_vector"] = {module.name == layout::embedding_module ? module.in : module.out};
    if (!in_block) allowed_[name + ".base_layer.weight"] = {module.out, module.in};  // PEFT saves what it adapted of the two
  }

  // Weights that were trained whole; where the adapter is merged, the writer finds out whether the model has them.
  static bool is_whole_weight(const std::string& name) {
    return name.starts_with(prefix) && name.ends_with(".weight") && name.find(".lora_") == name.npos &&
           name.find(".base_layer.") == name.npos;
  }

  void compare() {
    const fs::path file = adapter_weights_file(folder_);
    const base::MappedFile mapped(file);
    std::vector<std::string> strange;
    std::set<std::string> found;
    for (const base::StoredTensor& tensor : base::read_safetensors_header(mapped.bytes(), file).tensors) {
      if (tensor.dtype != "F32" && tensor.dtype != "BF16" && tensor.dtype != "F16") {
        throw base::checkpoint_error("lora", "{}: tensor {} is {}; adapters are F32, BF16 or F16.", file.string(), tensor.name,
                                     tensor.dtype);
      }
      found.insert(tensor.name);
      const auto needed = needed_.find(tensor.name), allowed = allowed_.find(tensor.name);
      const Shape* shape = needed != needed_.end() ? &needed->second : allowed != allowed_.end() ? &allowed->second : nullptr;
      if (shape != nullptr && *shape != tensor.shape)
        throw misfit(fmt::format("its tensor {} is {}, this model needs {}", tensor.name, shape_text(tensor.shape), shape_text(*shape)));
      if (shape == nullptr && !(use_ == AdapterUse::merge && is_whole_weight(tensor.name))) strange.push_back(tensor.name);
    }
    std::vector<std::string> missing;
    for (const auto& [name, shape] : needed_)
      if (!found.contains(name)) missing.push_back(name);
    if (strange.empty() && missing.empty()) return;
    std::vector<std::string> reasons;
    if (!strange.empty())
      reasons.push_back(
          fmt::format("{} of its {} tensors belong to no matrix of this model, such as {}", strange.size(), found.size(), strange.front()));
    if (!missing.empty()) reasons.push_back(fmt::format("{} tensors are missing, such as {}", missing.size(), missing.front()));
    throw misfit(base::join(reasons, ", and ") + hint(strange));
  }

  // Names that tell what the adapter was made on.
  static std::string hint(const std::vector<std::string>& strange) {
    const auto any = [&](std::string_view part) {
      return std::any_of(strange.begin(), strange.end(), [&](const std::string& name) { return name.find(part) != name.npos; });
    };
    if (any(".trainable_tokens_delta")) return ". It trained single tokens (trainable_token_indices)";
    if (any("base_model.model.layers.")) return ". Its names lack \"model.\": it was made for a model without its head";
    if (any(".experts.")) return ". It was made for a mixture of experts";
    if (any("vision") || any("visual")) return ". It was made for a model that also sees pictures";
    return "";
  }

  void refuse_modules_trained_whole() const {
    for (const std::string& name : lora_.modules_to_save) {
      LoraConfig only;
      only.modules_to_save = {name};
      const layout::AdapterTargets one(only);
      if (one.saves(std::string(layout::embedding_module)) || one.saves(std::string(layout::head_module))) continue;
      throw base::usage_error("lora", "{}: modules_to_save names {}; embed_tokens and lm_head can be trained whole. {}",
                              (folder_ / "adapter_config.json").string(), name, merge_it);
    }
  }

  void refuse_what_only_merges(const std::vector<layout::Module>& modules) const {
    for (const layout::Module& module : modules) {
      if (layout::is_in_block(module.name)) continue;
      const bool tied = model_.tie_embeddings && (targets_.contains(module.name) || targets_.saves(module.name));
      if (use_ == AdapterUse::fold && tied) {
        throw base::usage_error("lora", "{} changes {}, which this model shares between embedding and head. {}", folder_.string(),
                                module.name, merge_it);
      }
      if (use_ == AdapterUse::go_on && targets_.contains(module.name)) {
        throw base::usage_error("lora", "{}: target_modules has {}. Adapters on it are merged, not trained further or generated with. {}",
                                (folder_ / "adapter_config.json").string(), module.name, merge_it);
      }
    }
  }

  base::UserError misfit(const std::string& why) const {
    const std::string base = adapter_base_name(folder_);
    const std::string here = model_.path.empty() ? fmt::format("the model {}", model_.name) : model_.path;
    return base::usage_error("lora", "{} does not fit {} ({} blocks of {}, {} tokens): {}. The adapter was made for {}. {}",
                             folder_.string(), here, model_.num_layers, model_.hidden_size, model_.vocab_size, why,
                             base.empty() ? "a model that it does not name" : base,
                             "Give that model with --model, or an adapter of this one.");
  }

  const fs::path folder_;
  const ModelConfig model_;
  AdapterUse use_;
  LoraConfig lora_;
  layout::AdapterTargets targets_;
  std::map<std::string, Shape> needed_, allowed_;
};

}  // namespace

void check_adapter_fits(const fs::path& folder, const ModelConfig& model, AdapterUse use) {
  Fit(folder, layout::with_defaults(model), use).check();
}

fs::path adapter_weights_file(const fs::path& folder) {
  const fs::path file = folder / "adapter_model.safetensors";
  std::error_code error;
  if (fs::exists(file, error)) return file;
  const bool pickled = fs::exists(folder / "adapter_model.bin", error);
  throw base::checkpoint_error("lora", "{} has no adapter_model.safetensors.{}", folder.string(),
                               pickled ? " Its adapter_model.bin is a pickle, which is not read; save the adapter again with "
                                         "safe_serialization=True."
                                       : "");
}

}  // namespace lockstep::config
