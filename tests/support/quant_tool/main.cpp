// Lets the parity test see our quantized weights: `quantize KIND IN OUT` gives what we hold for each matrix of a safetensors file, packed
// as bitsandbytes packs it, and NAME.dense, what it stands for; `dense DTYPE IN OUT` reads packed weights, ours or bitsandbytes'.
#include <cstdio>

#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "rank/hub/bnb.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/safetensors.h"
#include "rank/model/weights/quantized.h"
#include "support/safetensors_tool/write_safetensors.h"

namespace lockstep::checkpoint {
namespace {

at::Tensor view(const SafetensorsFile& file, const TensorEntry& entry) {
  return at::from_blob(const_cast<std::byte*>(file.bytes(entry).data()), entry.shape, at::TensorOptions().dtype(entry.dtype)).clone();
}

model::QuantizedMatrix matrix_of(const model::Piece& piece, const std::string& kind, at::ScalarType dtype) {
  return {model::LeafSpec{.name = "m", .pieces = {piece}},
          {.weight_dtype = dtype,
           .trainable = false,
           .quantization = kind == "int8" ? model::Quantization::int8 : model::Quantization::nf4,
           .double_quant = kind == "nf4"}};
}

// kind: nf4 | nf4-plain (scales are not quantized) | int8
void quantize(const std::string& kind, const SafetensorsFile& in, const std::filesystem::path& out) {
  std::vector<NamedTensor> contents;
  for (const TensorEntry& entry : in.entries()) {
    const model::Piece piece{entry.name, entry.shape};
    auto matrix = matrix_of(piece, kind, entry.dtype);
    matrix.store(0, view(in, entry));
    at::Tensor buffer;
    contents.push_back({entry.name + ".dense", matrix.dense(buffer)});
    if (kind == "int8") {
      contents.push_back({entry.name, matrix.piece(0).codes});
      contents.push_back({entry.name + ".absmax", matrix.piece(0).scales});
      continue;
    }
    for (const NamedTensor& tensor : hub::bnb_tensors(piece, matrix, 0)) contents.push_back({tensor.name, tensor.tensor});
  }
  support::write_safetensors(out, contents);
}

void dense(const std::string& dtype, const SafetensorsFile& in, const std::filesystem::path& out) {
  const auto find = [&](const std::string& name) {
    const TensorEntry* entry = in.find(name);
    return entry ? view(in, *entry) : at::Tensor();
  };
  std::vector<NamedTensor> contents;
  for (const TensorEntry& entry : in.entries()) {
    const auto key = entry.name.find(".quant_state.");
    if (key == entry.name.npos) continue;
    const std::string name = entry.name.substr(0, key), text(reinterpret_cast<const char*>(in.bytes(entry).data()), entry.bytes());
    const auto state = nlohmann::json::parse(text);
    const model::Piece piece{name, state.at("shape").get<std::vector<std::int64_t>>()};
    auto matrix = matrix_of(piece, "nf4", dtype == "F32" ? at::kFloat : dtype == "F16" ? at::kHalf : at::kBFloat16);
    matrix.assign(0, hub::read_bnb(find, piece, in.path().string()));
    at::Tensor buffer;
    contents.push_back({name, matrix.dense(buffer)});
  }
  support::write_safetensors(out, contents);
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: quant_tool quantize|dense KIND|DTYPE IN OUT\n"), 2;
  try {
    const std::string verb = argv[1];
    const lockstep::checkpoint::SafetensorsFile in(argv[3]);
    if (verb == "quantize") lockstep::checkpoint::quantize(argv[2], in, argv[4]);
    if (verb == "dense") lockstep::checkpoint::dense(argv[2], in, argv[4]);
  } catch (const lockstep::base::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
