// The layout's words as this room speaks them: model::UnitSpec is layout::UnitSpec.
#pragma once

#include "layout/adapters/adapters.h"
#include "layout/decoder.h"
#include "layout/dims.h"
#include "layout/flops.h"
#include "layout/fp8.h"
#include "layout/recompute.h"
#include "layout/unit.h"

namespace lockstep::model {

using layout::adapted_matrices;
using layout::AdaptedMatrix;
using layout::adapter_bytes;
using layout::adapter_units;
using layout::adapters_drop;
using layout::BlockLeaves;
using layout::decoder_units;
using layout::describe;
using layout::Dims;
using layout::flat_elements;
using layout::Flops;
using layout::flops_per_token;
using layout::fp8_bytes;
using layout::HeadLeaves;
using layout::Init;
using layout::kBlockMatrices;
using layout::kEmbeddingWeight;
using layout::LeafSpec;
using layout::MicroBatch;
using layout::Piece;
using layout::Quantization;
using layout::Recompute;
using layout::Role;
using layout::UnitSpec;

}  // namespace lockstep::model
