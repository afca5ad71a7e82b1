// The folder's files one after the other: shards, index, config.json, generation_config.json, tokenizer.
#include "rank/hub/hub_writer.h"

#include <algorithm>
#include <map>

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/replace_folder.h"
#include "base/json.h"
#include "config/model_folder.h"
#include "rank/hub/bnb.h"
#include "rank/checkpoint/safetensors.h"
#include "rank/model/model.h"

namespace lockstep::hub {

using checkpoint::lay_out;
using checkpoint::NamedTensor;
using checkpoint::safetensors_header;
using checkpoint::TensorEntry;

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t chunk_elements = 8 << 20;

constexpr const char* tokenizer_files[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "chat_template.json"};

void write_file(base::FileSystem& files, const fs::path& path, std::string_view text) {
  auto file = files.create(path);
  file->write(std::as_bytes(std::span(text.data(), text.size())));
  file->sync_and_close();
}

class Writer {
 public:
  Writer(base::FileSystem& files, fs::path folder, const HubExport& what, const TensorSource& tensors, const ExportProgress& progress)
      : files_(files),
        folder_(std::move(folder)),
        what_(what),
        tensors_(tensors),
        progress_(progress),
        dtype_(model::scalar_type(what.dtype)),
        packing_(what.nf4),
        buffer_(at::empty({chunk_elements}, dtype_)) {}

  void write() {
    const auto shards = cut_into_shards();
    for (std::size_t i = 0; i < shards.size(); ++i) write_shard(shard_name(i, shards.size()), shards[i]);
    if (shards.size() > 1) write_index(shards);
    write_file(files_, folder_ / "config.json", config_text());
    if (what_.source.empty() || !copy(what_.source / "generation_config.json"))
      write_file(files_, folder_ / "generation_config.json", "{\n  \"_from_model_config\": true\n}\n");
    copy_tokenizer();
    files_.sync_directory(folder_);
  }

 private:
  using Shard = std::vector<TensorEntry>;

  // In the model's order, a new shard where the next tensor would make this one too large: a tensor is never cut.
  std::vector<Shard> cut_into_shards() {
    std::vector<Shard> shards;
    std::uint64_t room = 0;
    for (const model::UnitSpec& unit : model::decoder_units(what_.model)) {
      for (const model::LeafSpec& leaf : unit.leaves) {
        for (const model::Piece& piece : leaf.pieces) {
          const Shard entries = entries_of(leaf, piece);
          std::uint64_t bytes = 0;
          for (const TensorEntry& entry : entries) bytes += bytes_of(entry);
          if (shards.empty() || bytes > room) {
            shards.emplace_back();
            room = what_.max_shard_bytes;
          }
          room -= std::min(room, bytes);
          total_ += bytes;
          shards.back().insert(shards.back().end(), entries.begin(), entries.end());
        }
      }
    }
    return shards;
  }

  static std::uint64_t bytes_of(const TensorEntry& entry) {
    std::uint64_t bytes = c10::elementSize(entry.dtype);
    for (const std::int64_t size : entry.shape) bytes *= static_cast<std::uint64_t>(size);
    return bytes;
  }

  // What a file holds for a piece: itself, or its packed parts, whose sizes only packing tells.
  Shard entries_of(const model::LeafSpec& leaf, const model::Piece& piece) {
    if (!packing_ || leaf.role != model::Role::inner || !leaf.decay) return {{piece.name, dtype_, piece.shape}};
    Shard entries;
    packed_pieces_.push_back(piece);
    for (const NamedTensor& part : packed(piece)) {
      part_of_[part.name] = packed_pieces_.size() - 1;
      entries.push_back({part.name, part.tensor.scalar_type(), part.tensor.sizes().vec()});
    }
    return entries;
  }

  // The parts of one piece; the last one asked for is kept, since its parts are written in a row.
  const std::vector<NamedTensor>& packed(const model::Piece& piece) {
    if (packed_name_ == piece.name) return packed_;
    model::QuantizedMatrix matrix({.name = piece.name, .pieces = {piece}},
                                  {.weight_dtype = dtype_, .trainable = false, .quantization = model::Quantization::nf4});
    matrix.store(0, tensors_.fetch(piece.name));
    if (tensors_.done) tensors_.done(piece.name);
    packed_ = bnb_tensors(piece, matrix, 0);
    packed_name_ = piece.name;
    return packed_;
  }

  std::string config_text() const {
    const std::string text = config::hugging_face_config(what_.model, what_.dtype, what_.source);
    if (!packing_) return text;
    auto json = base::parse_json(text);
    json["quantization_config"] = base::parse_json(bnb_config_json(dtype_, /*double_quant=*/true));
    return json.dump(2) + "\n";
  }

  static std::string shard_name(std::size_t index, std::size_t count) {
    return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
  }

  void write_shard(const std::string& name, Shard shard) {
    lay_out(shard);
    auto file = files_.create(folder_ / name);
    const std::string header = safetensors_header(shard, {{"format", "pt"}});
    file->write(std::as_bytes(std::span(header.data(), header.size())));
    for (const TensorEntry& entry : shard) {
      if (const auto part = part_of_.find(entry.name); part != part_of_.end()) {
        write_part(*file, entry, packed_pieces_[part->second]);
        continue;
      }
      write_tensor(*file, entry);
      if (tensors_.done) tensors_.done(entry.name);
    }
    file->sync_and_close();
  }

  void write_part(base::FileWriter& file, const TensorEntry& entry, const model::Piece& piece) {
    for (const NamedTensor& part : packed(piece)) {
      if (part.name != entry.name) continue;
      const at::Tensor bytes = part.tensor.contiguous();
      file.write({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
      written_ += bytes.nbytes();
    }
    if (progress_) progress_(written_, total_);
  }

  void write_tensor(base::FileWriter& file, const TensorEntry& entry) {
    const at::Tensor tensor = tensors_.fetch(entry.name);
    base::check(tensor.sizes() == at::IntArrayRef(entry.shape), fmt::format("tensor {} has the model's shape", entry.name));
    const at::Tensor flat = tensor.reshape({-1});
    for (std::int64_t at = 0; at < flat.numel(); at += chunk_elements) {
      const std::int64_t count = std::min(chunk_elements, flat.numel() - at);
      const at::Tensor from = flat.narrow(0, at, count), to = buffer_.narrow(0, 0, count);
      to.copy_(from);
      if (dtype_ == at::kHalf) check_range(entry.name, from, to);
      file.write({static_cast<const std::byte*>(to.const_data_ptr()), to.nbytes()});
      written_ += to.nbytes();
      if (progress_) progress_(written_, total_);
    }
  }

  // f16 ends at 65504; what was finite before must be so after.
  static void check_range(const std::string& name, const at::Tensor& from, const at::Tensor& to) {
    if (at::isfinite(to).all().item<bool>() || !at::isfinite(from).all().item<bool>()) return;
    throw base::checkpoint_error("export", "tensor {} holds numbers beyond 65504, the largest that f16 has. Use --dtype bf16.", name);
  }

  void write_index(const std::vector<Shard>& shards) {
    nlohmann::ordered_json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", nlohmann::ordered_json::object()}};
    for (std::size_t i = 0; i < shards.size(); ++i) {
      for (const TensorEntry& entry : shards[i]) index["weight_map"][entry.name] = shard_name(i, shards.size());
    }
    write_file(files_, folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
  }

  bool copy(const fs::path& from) {
    std::error_code error;
    if (!fs::is_regular_file(from, error)) return false;
    write_file(files_, folder_ / from.filename(), base::read_text(from));
    return true;
  }

  void copy_tokenizer() {
    std::error_code error;
    if (what_.tokenizer.empty()) return;
    if (fs::is_regular_file(what_.tokenizer, error))
      return write_file(files_, folder_ / "tokenizer.json", base::read_text(what_.tokenizer));
    for (const char* name : tokenizer_files) copy(what_.tokenizer / name);
  }

  base::FileSystem& files_;
  const fs::path folder_;
  const HubExport& what_;
  const TensorSource& tensors_;
  const ExportProgress& progress_;
  const at::ScalarType dtype_;
  const bool packing_;
  const at::Tensor buffer_;
  std::vector<model::Piece> packed_pieces_;
  std::map<std::string, std::size_t> part_of_;  // a part's name -> its piece
  std::string packed_name_;
  std::vector<NamedTensor> packed_;
  std::uint64_t total_ = 0, written_ = 0;
};

}  // namespace

void write_hub_folder(base::FileSystem& files, const fs::path& folder, const HubExport& what, const TensorSource& tensors,
                      const ExportProgress& progress) {
  const fs::path partial = folder.string() + ".partial";
  files.remove_all(partial);
  files.create_directories(partial);
  try {
    Writer(files, partial, what, tensors, progress).write();
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);  // half a model is of no use, and may be what filled the disk
    throw;
  }
  const fs::path replaced = folder.string() + ".replaced";
  files.remove_all(replaced);
  if (base::replace_folder(files, partial, folder, replaced)) files.remove_all(replaced);
}

}  // namespace lockstep::hub
