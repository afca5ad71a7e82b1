// Folds adapters into a model folder, tensor by tensor: the model is never whole in memory.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/progress_bar.h"
#include "base/text.h"
#include "config/config.h"
#include "config/model_folder.h"
#include "rank/hub/bnb.h"
#include "rank/hub/hub_folder.h"
#include "rank/hub/hub_writer.h"
#include "rank/hub/peft.h"
#include "rank/model/model.h"
#include "rank/verbs/export.h"

namespace lockstep::verbs {
namespace {

namespace fs = std::filesystem;
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// What adapters change must be there; a tied head or embedding that was trained alone becomes two matrices.
std::set<std::string> all_touched(const std::vector<hub::PeftAdapter>& adapters, const hub::HubFolder& folder, bool tied) {
  std::set<std::string> names;
  for (const hub::PeftAdapter& adapter : adapters) {
    for (const std::string& name : adapter.touched()) {
      if (folder.find(name) == nullptr && !(tied && name == kHead))
        throw base::checkpoint_error("merge", "{} changes {}, which {} does not have. The adapter belongs to another model.",
                                     adapter.path().string(), name, folder.path().string());
      names.insert(name);
    }
  }
  return names;
}

}  // namespace

MergeRequest parse_merge_request(const Arguments& arguments) {
  MergeRequest request{parse_folder_request(arguments), argument(arguments, "model"), {}};
  for (const std::string& folder : base::split(argument(arguments, "adapters"), '\n')) request.adapters.emplace_back(folder);
  return request;
}

std::string merge_adapters(const MergeRequest& request) {
  const hub::HubFolder folder(request.model);
  config::FolderModel there = config::read_model_folder(request.model);
  config::ModelConfig model = config::with_defaults(there.model);
  std::vector<hub::PeftAdapter> adapters;
  for (const fs::path& path : request.adapters) adapters.emplace_back(path);
  const std::set<std::string> touched = all_touched(adapters, folder, model.tie_embeddings);
  folder.check(model::decoder_units(model));
  const bool tied = model.tie_embeddings;
  if (touched.contains(kEmbedding) || touched.contains(kHead)) model.tie_embeddings = false;

  const auto dtype = request.dtype.empty() ? config::dtype_from_hugging_face(there.dtype) : config::dtype_named(request.dtype);
  hub::HubExport what{.model = model,
                      .dtype = dtype.value_or(config::DType::bf16),
                      .source = request.model,
                      .tokenizer = request.model,
                      .max_shard_bytes = request.max_shard_bytes,
                      .nf4 = request.nf4};
  std::map<std::string, model::Piece> pieces;
  for (const model::UnitSpec& unit : model::decoder_units(model)) {
    for (const model::LeafSpec& leaf : unit.leaves) {
      for (const model::Piece& piece : leaf.pieces) pieces[piece.name] = piece;
    }
  }
  const auto original_name = [&](const std::string& name) { return tied && name == kHead ? std::string(kEmbedding) : name; };
  base::ProgressBar bar;
  std::uint64_t total = 0;
  hub::write_hub_folder(base::real_files(), request.output, what,
                        {.fetch =
                             [&](const std::string& name) {
                               const model::Piece original{original_name(name), pieces.at(name).shape};
                               at::Tensor weight = hub::whole_weight(folder, original, model::scalar_type(what.dtype));
                               for (const hub::PeftAdapter& adapter : adapters) weight = adapter.folded(name, weight);
                               return weight;
                             },
                         .done = [&](const std::string& name) { folder.forget(original_name(name)); }},
                        [&](std::uint64_t bytes, std::uint64_t of) {
                          total = of;
                          bar.show(bytes, of, fmt::format("{} of {}", base::human_bytes(bytes), base::human_bytes(of)));
                        });
  return fmt::format("{}: {} in {}, {} matrices changed by {}", request.output.string(), base::human_bytes(total),
                     config::name_of(what.dtype), touched.size(), request.adapters.size() == 1 ? "the adapter" : "the adapters");
}

}  // namespace lockstep::verbs
