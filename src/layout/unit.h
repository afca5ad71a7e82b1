// What a model is made of, without a tensor: units of leaves, leaves of pieces, and where each lies in its unit's flat buffers.
// Pure functions of plain data; both programs link them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace lockstep::layout {

// What a checkpoint calls one tensor, in Hugging Face's names.
struct Piece {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;

  std::int64_t elements() const;
};

enum class Init { normal, uniform, ones, zeros };

// What an optimizer must know of a parameter to give it its learning rate and its method.
enum class Role { inner, token_embedding, output_head, adapter_b };

// What a placement is chosen by.
enum class LeafClass { dense, expert, adapter };

// The dimension along which tensor parallelism may cut a leaf: rows are outputs, columns are inputs.
enum class Split { none, rows, columns };

// One parameter as the model uses it: its pieces stacked along the first dimension ("q, k, v" are one matrix).
struct LeafSpec {
  std::string name;  // "qkv_proj.weight": unique within the unit
  std::vector<Piece> pieces;
  Init init = Init::normal;
  double init_std = 0.02;  // of normal numbers; the bound of uniform ones
  bool decay = true;       // takes weight decay: matrices do, norms and biases do not
  Role role = Role::inner;
  LeafClass kind = LeafClass::dense;
  Split split = Split::none;

  std::vector<std::int64_t> shape() const;
  std::int64_t elements() const;
};

// Leaves with decay stand before those without, so that an optimizer sees two plain ranges.
struct UnitSpec {
  std::string name;  // "block 14"
  std::vector<LeafSpec> leaves;

  std::int64_t parameters() const;
};

// How matrices of frozen units are held; norms and biases stay dense, and so do embedding and head.
enum class Quantization { none, nf4, int8 };

// How a unit is held by a rank that has all of it.
struct Holding {
  config::DType dtype = config::DType::f32;  // of the weights that forward reads
  bool trained = true;                       // false: frozen, neither gradients nor master weights
  bool master = true;                        // trained in 16 bits: f32 masters; false: the weights are their own, rounded stochastically
  Quantization quantization = Quantization::none;  // of matrices, where the unit is frozen
  bool double_quant = true;                        // NF4: the scales are codes too
};

// Where a unit's leaves lie. Each dense leaf starts at a multiple of 64 elements and the whole is padded to 256; quantized leaves are no
// part of the flat buffers.
struct FlatLayout {
  std::vector<std::optional<std::int64_t>> offsets;  // by leaf, in elements; nothing where the leaf is quantized
  std::int64_t elements = 0;                         // of a flat buffer, padding included
  std::int64_t decayed = 0;                          // elements [0, decayed) take weight decay
};
FlatLayout flat_layout(const UnitSpec& spec, const Holding& holding);
// Of a unit that is dense: flat_layout().elements.
std::int64_t flat_elements(const UnitSpec& spec);

bool is_quantized(const LeafSpec& leaf, const Holding& holding);
// Codes, scales and, with double quantization, outer scales and their map: a piece is quantized by itself.
std::int64_t quantized_bytes(const Piece& piece, Quantization kind, bool double_quant);

// A frozen unit with quantized matrices in one buffer, so that ranks exchange it at once: its dense numbers, then codes, scales and outer
// scales of each piece in turn, each beginning at a multiple of kPackedAlignment bytes. Maps, which are all the same, are left out.
inline constexpr std::int64_t kPackedAlignment = 64;
bool is_packed(const UnitSpec& spec, const Holding& holding);
std::int64_t packed_bytes(const UnitSpec& spec, const Holding& holding);

inline constexpr std::int64_t kLeafAlignment = 64;   // elements: 128 bytes even for 16-bit types, so vector loads never straddle
inline constexpr std::int64_t kUnitAlignment = 256;  // elements: a block of 8-bit states, and a multiple of every vector
inline constexpr std::int64_t kWeightBlock = 64;     // weights that share a scale
inline constexpr std::int64_t kScaleBlock = 256;     // scales that share an outer scale

// 8-bit AdamW: parameters of fewer numbers keep f32 moments; others are coded in blocks.
inline constexpr std::int64_t smallest_coded = 4096;
inline constexpr std::int64_t state_block = 256;

std::int64_t bytes_of(config::DType dtype);
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace lockstep::layout
