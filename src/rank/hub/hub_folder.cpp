// Opens a model folder's weight files and compares what they hold with what a model needs.
#include "rank/hub/hub_folder.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/file/safetensors.h"
#include "base/text.h"
#include "rank/hub/bnb.h"
#include "rank/checkpoint/pages.h"

namespace lockstep::hub {

using checkpoint::drop_pages;
using checkpoint::dtype_name;
using checkpoint::SafetensorsFile;
using checkpoint::TensorEntry;

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t longest_index = 256u << 20;

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string some_of(const std::vector<std::string>& names) {
  std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(names.size(), 3)));
  return base::join(first, ", ") + (names.size() > first.size() ? fmt::format(" and {} more", names.size() - first.size()) : "");
}

// What `git clone` leaves where the large files were not fetched.
bool is_lfs_pointer(const fs::path& path) {
  std::string start(40, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start.starts_with("version https://git-lfs");
}

std::unique_ptr<SafetensorsFile> open_file(const fs::path& path) {
  if (is_lfs_pointer(path)) {
    throw base::checkpoint_error("model", "{} is a pointer of Git LFS, not the weights. Fetch them: git lfs pull.", path.string());
  }
  return std::make_unique<SafetensorsFile>(path);
}

base::UserError no_weights(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) {
      return base::checkpoint_error("model",
                                    "{} holds its weights as {}, a pickle, which could run any code and is not read. Convert it once with "
                                    "transformers: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR).",
                                    folder.string(), name);
    }
    if (name.ends_with(".gguf")) {
      return base::checkpoint_error("model", "{} holds {}; GGUF files are not read. Use the folder with the model's safetensors files.",
                                    folder.string(), name);
    }
  }
  return base::checkpoint_error("model", "{} holds neither model.safetensors nor model.safetensors.index.json.", folder.string());
}

}  // namespace

HubFolder::HubFolder(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  base::refuse_if_hidden(folder);
  if (!fs::is_directory(folder, error)) throw base::checkpoint_error("model", "{}: there is no such folder.", folder.string());
  const fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(single, error))
    open_single(single);
  else if (fs::exists(index, error))
    open_index(index);
  else
    throw no_weights(folder);
}

HubFolder::HubFolder(HubFolder&&) noexcept = default;
HubFolder::~HubFolder() = default;

void HubFolder::open_single(const fs::path& path) {
  files_.push_back(open_file(path));
  for (const TensorEntry& entry : files_.back()->entries()) tensors_[entry.name] = {files_.back().get(), &entry};
}

void HubFolder::open_index(const fs::path& index) {
  std::error_code error;
  if (fs::file_size(index, error) > longest_index) {
    throw base::checkpoint_error("model", "{} is damaged: an index is never larger than 256 MiB.", index.string());
  }
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, name] : base::read_safetensors_index(base::read_text(index), index)) {
    const SafetensorsFile*& file = opened[name];
    if (file == nullptr) {
      if (!fs::exists(folder_ / name, error)) {
        throw base::checkpoint_error("model", "{} is missing; {} names it. Fetch the folder again.", (folder_ / name).string(),
                                     index.filename().string());
      }
      files_.push_back(open_file(folder_ / name));
      file = files_.back().get();
    }
    const TensorEntry* entry = file->find(tensor);
    if (entry == nullptr) {
      throw base::checkpoint_error("model", "{} does not hold tensor {}, which {} says it does.", file->path().string(), tensor,
                                   index.filename().string());
    }
    tensors_[tensor] = {file, entry};
  }
}

const HubFolder::Tensor* HubFolder::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

namespace {

base::UserError missing(const HubFolder& folder, const std::vector<std::string>& names) {
  const std::string& first = names.front();
  std::string hint;
  if (first.starts_with("model.") && folder.find(first.substr(6)) != nullptr) {
    hint = " Its names lack \"model.\": it was saved from a model without its head. Save the ...ForCausalLM instead.";
  } else if (folder.find("language_model." + first) != nullptr || folder.find("model.language_model." + first.substr(6)) != nullptr) {
    hint = " It is part of a model that also sees pictures or hears: those are not supported.";
  } else {
    hint = " Its config.json and its weights are not of the same model.";
  }
  return base::checkpoint_error("model", "{}: tensor {} {} missing.{}", folder.path().string(), some_of(names),
                                names.size() == 1 ? "is" : "are", hint);
}

void check_tensor(const HubFolder::Tensor& tensor, const model::Piece& piece) {
  const at::ScalarType dtype = tensor.entry->dtype;
  const auto error = [&](std::string_view what) {
    return base::checkpoint_error("model", "{}: tensor {} {}", tensor.file->path().string(), piece.name, what);
  };
  if (dtype == at::kChar) {
    throw error("is I8: its weights are already quantized to 8 bits. Use the folder of the 16-bit weights, with load_in_8bit if you like.");
  }
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16) {
    throw error(fmt::format("is {}; F32, F16 and BF16 are read.", dtype_name(dtype)));
  }
  if (tensor.entry->shape != piece.shape) {
    throw error(fmt::format("has shape {}, but config.json makes it {}.", shape_text(tensor.entry->shape), shape_text(piece.shape)));
  }
}

}  // namespace

std::vector<std::string> HubFolder::check(std::span<const model::UnitSpec> units) const {
  std::set<std::string> needed;
  std::vector<std::string> absent;
  for (const model::UnitSpec& unit : units) {
    for (const model::LeafSpec& leaf : unit.leaves) {
      for (const model::Piece& piece : leaf.pieces) {
        needed.insert(piece.name);
        const Tensor* tensor = find(piece.name);
        if (tensor == nullptr) {
          absent.push_back(piece.name);
        } else if (tensor->entry->dtype == at::kByte) {
          read_bnb(*this, piece);  // throws where it does not fit
          for (const std::string& part : bnb_part_names(piece.name)) needed.insert(part);
        } else {
          check_tensor(*tensor, piece);
        }
      }
    }
  }
  if (!absent.empty()) throw missing(*this, absent);

  std::vector<std::string> extra;
  for (const auto& [name, tensor] : tensors_) {
    if (needed.contains(name) || name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight") continue;
    if (name.ends_with(".bias") && needed.contains(name.substr(0, name.size() - 4) + "weight")) {
      throw base::checkpoint_error("model", "{}: tensor {}: a bias there is not supported; only those of q_proj, k_proj and v_proj are.",
                                   tensor.file->path().string(), name);
    }
    extra.push_back(name);
  }
  if (extra.empty()) return {};
  return {fmt::format("{} {} of {} not part of this model and left out: {}", extra.size(), extra.size() == 1 ? "tensor" : "tensors",
                      folder_.string() + (extra.size() == 1 ? " is" : " are"), some_of(extra))};
}

at::Tensor HubFolder::view(const std::string& name) const {
  const Tensor* tensor = find(name);
  base::check(tensor != nullptr, fmt::format("tensor {} was looked for first", name));
  return checkpoint::tensor_of(tensor->file->bytes(*tensor->entry), tensor->entry->dtype, tensor->entry->shape);
}

at::Tensor HubFolder::view(const std::string& name, std::int64_t begin, std::int64_t count) const {
  const Tensor* tensor = find(name);
  base::check(tensor != nullptr, fmt::format("tensor {} was looked for first", name));
  const std::span<const std::byte> all = tensor->file->bytes(*tensor->entry);
  const std::size_t element = c10::elementSize(tensor->entry->dtype), first = static_cast<std::size_t>(begin) * element,
                    bytes = static_cast<std::size_t>(count) * element;
  if (bytes == all.size()) return view(name);
  return checkpoint::tensor_of(all.subspan(first, bytes), tensor->entry->dtype, {count});
}

void HubFolder::forget(const std::string& name) const {
  const Tensor* tensor = find(name);
  base::check(tensor != nullptr, fmt::format("tensor {} was looked for first", name));
  drop_pages(tensor->file->bytes(*tensor->entry));
}

}  // namespace lockstep::hub
