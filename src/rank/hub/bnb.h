// Weights in four bits as bitsandbytes packs them into safetensors files: for a layer X, X.weight holds the codes as bytes, X.weight.absmax
// the scales, X.weight.quant_map the 16 levels; where scales are codes too, X.weight.nested_absmax and .nested_quant_map; all else stands
// as JSON in X.weight.quant_state.bitsandbytes__nf4.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "rank/checkpoint/checkpoint.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::hub {

class HubFolder;

// What a checkpoint stores for one piece of an NF4 matrix, on the host.
std::vector<checkpoint::NamedTensor> bnb_tensors(const model::Piece& piece, const model::QuantizedMatrix& matrix, std::size_t index);

// What config.json says of such weights ("quantization_config"), as JSON.
std::string bnb_config_json(at::ScalarType compute_dtype, bool double_quant);

// A tensor by its name; undefined where there is none.
using FindTensor = std::function<at::Tensor(const std::string& name)>;

// The parts that read_bnb may ask for, beside the weight itself.
std::vector<std::string> bnb_part_names(const std::string& name);

// Throws UserError(ExitCode::checkpoint) that names `where` and the tensor: another format than NF4, other block sizes, parts that are
// missing or do not fit the piece. The tensors are find's own, on the host.
kernels::QuantizedBlocks read_bnb(const FindTensor& find, const model::Piece& piece, const std::string& where);
kernels::QuantizedBlocks read_bnb(const HubFolder& folder, const model::Piece& piece);

// A piece on the host as the folder holds it, or in `dtype` where it holds it in four bits.
at::Tensor whole_weight(const HubFolder& folder, const model::Piece& piece, at::ScalarType dtype);

}  // namespace lockstep::hub
