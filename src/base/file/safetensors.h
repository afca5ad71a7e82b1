// What safetensors files say of themselves, read without trusting a byte: headers, and the index of a model in several files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", one of those that the format has
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // within the data part
};

// Bytes of one number; 0 for a type that the format does not have.
std::size_t stored_dtype_bytes(std::string_view dtype);

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by place in the file
  std::map<std::string, std::string> metadata;
  std::size_t data_begin = 0;
};
// Checked: every tensor's bytes lie in the file, fit its shape, and overlap no other's; nothing is left over. Errors are
// UserError(ExitCode::checkpoint) that name the file and the tensor.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, const std::filesystem::path& path);

// model.safetensors.index.json: which file holds which tensor. Names of files are plain names within the folder.
std::map<std::string, std::string> read_safetensors_index(std::string_view text, const std::filesystem::path& path);

}  // namespace lockstep::base
