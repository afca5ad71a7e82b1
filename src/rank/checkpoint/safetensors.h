// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace lockstep::checkpoint {

struct TensorEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // within the data part
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

std::string_view dtype_name(at::ScalarType dtype);  // "F32"; throws UserError for a type that the format does not have

// Gives every entry its place. Types with large elements go first, so that each tensor is aligned; otherwise the order stays.
// Returns the size of the data part.
std::uint64_t lay_out(std::vector<TensorEntry>& entries);
// What stands before the data part; its size is a multiple of 4096.
std::string safetensors_header(std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata);

// The bytes where they lie, or a copy where the type cannot be read there.
at::Tensor tensor_of(std::span<const std::byte> bytes, at::ScalarType dtype, at::IntArrayRef shape);

// A mapped file whose header has been checked: every entry's bytes lie in the file, fit its shape, and overlap no other's.
// Errors are UserError(ExitCode::checkpoint) that name the file and the tensor. Thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // by place in the file
  const TensorEntry* find(const std::string& name) const;
  std::span<const std::byte> bytes(const TensorEntry& entry) const { return data_.subspan(entry.begin, entry.bytes()); }
  std::span<const std::byte> file_bytes() const { return file_.bytes(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  base::MappedFile file_;
  std::span<const std::byte> data_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace lockstep::checkpoint
