// Packs pieces of NF4 matrices as bitsandbytes does, and checks what it packed before anything believes it.
#include "rank/hub/bnb.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/json.h"
#include "rank/hub/hub_folder.h"

namespace lockstep::hub {

using checkpoint::NamedTensor;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view nf4_key = ".quant_state.bitsandbytes__nf4", fp4_key = ".quant_state.bitsandbytes__fp4";
constexpr std::int64_t longest_state = 1 << 16;  // bytes of JSON; real ones have some 170

using base::ceil_div;

std::int64_t elements_of(const model::Piece& piece) {
  std::int64_t count = 1;
  for (const std::int64_t size : piece.shape) count *= size;
  return count;
}

std::string_view torch_name(at::ScalarType dtype) { return dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16"; }

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<std::uint8_t>(), text.data(), text.size());
  return bytes;
}

class PieceReader {
 public:
  PieceReader(const FindTensor& find, const model::Piece& piece, const std::string& where) : find_(find), piece_(piece), where_(where) {}

  kernels::QuantizedBlocks read() {
    const std::int64_t count = elements_of(piece_), blocks = ceil_div(count, kernels::kWeightBlock);
    read_state();
    kernels::QuantizedBlocks held;
    held.codes = part("", at::kByte, kernels::code_bytes(kernels::Codes::nf4, count));
    if (!at::equal(part(".quant_map", at::kFloat, 16), kernels::nf4_levels())) throw wrong(".quant_map", "does not hold the levels of NF4");
    const bool nested = state_.contains("nested_offset");
    held.scales = part(".absmax", nested ? at::kByte : at::kFloat, blocks);
    if (!nested) return held;
    held.outer = part(".nested_absmax", at::kFloat, ceil_div(blocks, kernels::kScaleBlock));
    held.map = part(".nested_quant_map", at::kFloat, 256);
    held.offset = static_cast<float>(number("nested_offset"));
    if (!std::isfinite(held.offset)) throw wrong(std::string(nf4_key), "has a nested_offset that is no number");
    return held;
  }

 private:
  base::UserError wrong(const std::string& part, std::string_view what) const {
    return base::checkpoint_error("model", "{}: tensor {}{} {}.", where_, piece_.name, part, what);
  }

  at::Tensor part(const std::string& name, at::ScalarType dtype, std::int64_t count) const {
    const at::Tensor tensor = find_(piece_.name + name);
    if (!tensor.defined()) throw wrong(name, "is missing, and the weights are held in four bits with it");
    if (tensor.scalar_type() != dtype || tensor.numel() != count) {
      throw wrong(name, fmt::format("has {} numbers of type {}, but a weight of [{}] in NF4 has {} of type {}", tensor.numel(),
                                    c10::toString(tensor.scalar_type()), fmt::join(piece_.shape, ", "), count, c10::toString(dtype)));
    }
    return tensor.contiguous().view({-1});
  }

  void read_state() {
    if (find_(piece_.name + std::string(fp4_key)).defined()) {
      throw wrong("", "is held as FP4 (quant_type fp4), which is not read. Use a folder with nf4, or the 16-bit weights and load_in_4bit");
    }
    const at::Tensor packed = find_(piece_.name + std::string(nf4_key));
    if (!packed.defined()) {
      throw wrong("", "is quantized in a way that is not read; NF4 of bitsandbytes is. Use the folder of the 16-bit weights");
    }
    const std::string key(nf4_key);
    if (packed.scalar_type() != at::kByte || packed.numel() > longest_state) throw wrong(key, "is damaged: it holds no JSON text");
    const at::Tensor text = packed.contiguous();
    state_ = base::json_if_any({static_cast<const char*>(text.const_data_ptr()), static_cast<std::size_t>(text.numel())}).value_or(nullptr);
    if (!state_.is_object()) throw wrong(key, "is damaged: it holds no JSON object");
    if (!state_.contains("quant_type") || state_["quant_type"] != "nf4") throw wrong(key, "does not say quant_type nf4");
    if (number("blocksize") != static_cast<double>(kernels::kWeightBlock)) {
      throw wrong(
          key, fmt::format("says blocksize {}; only 64 is read. Quantize the 16-bit weights again with load_in_4bit", number("blocksize")));
    }
    if (state_.contains("nested_offset") && number("nested_blocksize") != static_cast<double>(kernels::kScaleBlock)) {
      throw wrong(key, fmt::format("says nested_blocksize {}; only 256 is read", number("nested_blocksize")));
    }
    if (!state_.contains("shape") || state_["shape"] != Json(piece_.shape)) {
      throw wrong(key, fmt::format("says shape {}, but config.json makes it [{}]",
                                   state_.contains("shape") ? state_["shape"].dump() : "nothing", fmt::join(piece_.shape, ", ")));
    }
  }

  double number(const std::string& key) const {
    if (!state_.contains(key) || !state_[key].is_number()) throw wrong(std::string(nf4_key), fmt::format("has no number {}", key));
    return state_[key].get<double>();
  }

  const FindTensor& find_;
  const model::Piece& piece_;
  const std::string& where_;
  Json state_;
};

}  // namespace

std::vector<NamedTensor> bnb_tensors(const model::Piece& piece, const model::QuantizedMatrix& matrix, std::size_t index) {
  base::check(matrix.kind() == kernels::Codes::nf4, "bitsandbytes' checkpoints hold NF4");
  const kernels::QuantizedBlocks& held = matrix.piece(index);
  Json state = {{"quant_type", "nf4"}, {"blocksize", kernels::kWeightBlock}, {"dtype", torch_name(matrix.dtype())}, {"shape", piece.shape}};
  std::vector<NamedTensor> tensors = {{piece.name, held.codes.cpu().view({-1, 1})},
                                      {piece.name + ".absmax", held.scales.cpu()},
                                      {piece.name + ".quant_map", kernels::nf4_levels()}};
  if (held.outer.defined()) {
    tensors.push_back({piece.name + ".nested_absmax", held.outer.cpu()});
    tensors.push_back({piece.name + ".nested_quant_map", held.map.cpu()});
    state["nested_blocksize"] = kernels::kScaleBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = held.offset;
  }
  tensors.push_back({piece.name + std::string(nf4_key), bytes_of(state.dump())});
  return tensors;
}

std::string bnb_config_json(at::ScalarType compute_dtype, bool double_quant) {
  return Json{{"quant_method", "bitsandbytes"},
              {"load_in_4bit", true},
              {"load_in_8bit", false},
              {"bnb_4bit_quant_type", "nf4"},
              {"bnb_4bit_use_double_quant", double_quant},
              {"bnb_4bit_compute_dtype", torch_name(compute_dtype)},
              {"bnb_4bit_quant_storage", "uint8"}}
      .dump();
}

std::vector<std::string> bnb_part_names(const std::string& name) {
  std::vector<std::string> names;
  for (const char* part : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) names.push_back(name + part);
  names.push_back(name + std::string(nf4_key));
  return names;
}

kernels::QuantizedBlocks read_bnb(const FindTensor& find, const model::Piece& piece, const std::string& where) {
  return PieceReader(find, piece, where).read();
}

kernels::QuantizedBlocks read_bnb(const HubFolder& folder, const model::Piece& piece) {
  const HubFolder::Tensor* weight = folder.find(piece.name);
  return read_bnb([&](const std::string& name) { return folder.find(name) ? folder.view(name) : at::Tensor(); }, piece,
                  weight ? weight->file->path().string() : folder.path().string());
}

}  // namespace lockstep::hub
