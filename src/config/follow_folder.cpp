// Lays a model folder's shape over the settings and says where a person asked for another one.
#include "config/follow_folder.h"

#include <algorithm>
#include <array>

#include "base/file/last_name.h"
#include "base/text.h"
#include "config/model_folder.h"
#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t longest_by_itself = 2048;

// What a run may choose freely although the folder says something about it, or has no word about.
constexpr std::array own_keys = {"model.name",         "model.path",         "model.dtype",       "model.initializer_range",
                                 "model.load_in_4bit", "model.load_in_8bit", "model.double_quant"};
// 0 means "follows from the others" here, which contradicts nothing.
constexpr std::array open_when_zero = {"model.family", "model.kv_heads", "model.head_dim", "model.intermediate_size"};

bool contains(const auto& keys, std::string_view key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); }

bool by_person(const Source& source) { return source.origin != Origin::standard && source.origin != Origin::derived; }

}  // namespace

std::vector<std::string> follow_model_folder(Settings& settings) {
  RunConfig& config = settings.values;
  if (config.model.path.empty()) return {};
  const FolderModel found = read_model_folder(config.model.path);
  std::error_code error;
  const fs::path folder = fs::absolute(config.model.path, error).lexically_normal();
  const std::string file = (folder / "config.json").string();
  config.model.path = folder.string();  // ranks and later commands may be started elsewhere
  RunConfig there;
  there.model = found.model;

  std::vector<std::string> problems;
  const auto follows = [&](std::string_view key) { settings.sources[std::string(key)] = {Origin::derived, file}; };
  for (const Option& option : model_options()) {
    if (contains(own_keys, option.key)) continue;
    const Value mine = option.get(config), theirs = option.get(there);
    const Source& source = settings.source(option.key);
    if (by_person(source)) {
      const bool open = contains(open_when_zero, option.key) && std::get<std::int64_t>(mine) == 0;
      if (mine == theirs || option.key == "model.max_seq_len") continue;
      if (!open) {
        problems.push_back(fmt::format("{}: {} = {}, but {} says {}. Remove {}: the folder gives the model's shape.", source.where,
                                       option.key, write_value(option, mine), file, write_value(option, theirs), option.key));
        continue;
      }
    }
    option.set(config, theirs);
    follows(option.key);
  }
  if (!by_person(settings.source("model.name"))) {
    const std::string name = base::last_name(folder);
    config.model.name = name.empty() ? "model" : name;
    settings.sources["model.name"] = {Origin::derived, "model.path"};
  }
  if (!by_person(settings.source("model.dtype")) && !found.dtype.empty()) {
    const auto dtype = dtype_from_hugging_face(found.dtype);
    if (dtype) {
      config.model.dtype = *dtype;
      follows("model.dtype");
    } else {
      problems.push_back(
          fmt::format("{}: dtype = {} is not one that models are trained in. Set model.dtype: f32, bf16 or f16.", file, found.dtype));
    }
  }
  return problems;
}

std::int64_t standard_seq_len(const ModelConfig& model) {
  std::int64_t length = model.max_seq_len;
  if (!model.path.empty()) length = std::min(length, longest_by_itself);
  return model.sliding_window > 0 ? std::min(length, model.sliding_window) : length;
}

}  // namespace lockstep::config
