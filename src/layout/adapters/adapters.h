// Low-rank adapters (LoRA, DoRA) in PEFT's terms: which matrices have one, the units that hold them, and what they take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/decoder.h"
#include "layout/unit.h"

namespace lockstep::layout {

// Whether elements of adapters' inputs are dropped: batches then bring keys.
inline bool adapters_drop(const config::LoraConfig& lora) { return lora.enabled && lora.dropout > 0; }

// A unit of adapters for every unit of decoder_units(), or none where nothing in it is adapted or trained whole.
// Names are PEFT's, as adapter_model.safetensors holds them. UserError where a target names no matrix.
std::vector<std::optional<UnitSpec>> adapter_units(const config::ModelConfig& model, const config::LoraConfig& lora);

// Where leaves of adapter units stand: trained-whole copies come alone in the units of embedding and head.
struct AdaptedMatrix {
  std::size_t matrix;        // 0 .. kBlockMatrices - 1
  std::size_t a, magnitude;  // leaves of the adapter unit; magnitude only with DoRA
  struct Part {
    std::string module;            // "model.layers.0.self_attn.q_proj"
    std::int64_t column, columns;  // of the stacked matrix's output
    std::int64_t rank;
    double scale;      // what its product is multiplied with
    std::int64_t low;  // its first row of A, and column of the low-rank product
    std::size_t b;     // leaf: one for all parts where their ranks are equal, else each its own
    std::int64_t row;  // its first row of that leaf
  };
  std::vector<Part> parts;

  bool has_one_b() const { return parts.front().b == parts.back().b; }
  std::int64_t low_width() const { return parts.back().low + parts.back().rank; }
};
std::vector<AdaptedMatrix> adapted_matrices(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t layer);

// What adapters take for `rows` tokens beside the activations of a model without them: thin products that blocks keep, and AdapterScratch.
std::int64_t adapter_bytes(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t rows, std::int64_t element_size);

}  // namespace lockstep::layout
