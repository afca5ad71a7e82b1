// A Hugging Face model folder as settings: its config.json read without trusting it, and written so that other programs load it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "config/run_config.h"

namespace lockstep::config {

// What DIR/config.json says. Where transformers has a default for a missing key, it is that one.
struct FolderModel {
  ModelConfig model;  // the shape; name, path and dtype are left alone
  std::string dtype;  // "bfloat16"; empty where the file does not say
};

// Throws UserError(ExitCode::usage) that names the file, the key and what is supported.
FolderModel read_model_folder(const std::filesystem::path& folder);

// "float32" -> f32, with or without "torch."; nothing for types that no model here computes in.
std::optional<DType> dtype_from_hugging_face(std::string_view name);

// config.json for a model of this shape. With a `source` folder its file is the start and keeps what we know nothing of (token ids,
// versions); without one the family is layout::exported_family.
std::string hugging_face_config(const ModelConfig& model, DType dtype, const std::filesystem::path& source);

}  // namespace lockstep::config
