// Writing safetensors headers, and mapping files whose headers were read.
#include "rank/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/safetensors.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t length_bytes = 8;
constexpr std::size_t header_alignment = 4096;  // a page: data can be written past the page cache and mapped aligned

struct DtypeName {
  std::string_view name;
  at::ScalarType dtype;
};
constexpr std::array dtypes = {
    DtypeName{"F64", at::kDouble},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U8", at::kByte},
    DtypeName{"BOOL", at::kBool},
    DtypeName{"U64", at::kUInt64},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
};

at::ScalarType dtype_named(std::string_view name) {
  for (const auto& [known, dtype] : dtypes) {
    if (known == name) return dtype;
  }
  throw base::Bug(fmt::format("{} is a type of the format", name));
}

}  // namespace

std::string_view dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : dtypes) {
    if (known == dtype) return name;
  }
  throw base::checkpoint_error("checkpoint", "tensors of type {} cannot be stored as safetensors", c10::toString(dtype));
}

std::uint64_t lay_out(std::vector<TensorEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TensorEntry& a, const TensorEntry& b) { return c10::elementSize(a.dtype) > c10::elementSize(b.dtype); });
  std::uint64_t at = 0;
  for (TensorEntry& entry : entries) {
    std::uint64_t bytes = c10::elementSize(entry.dtype);
    for (const std::int64_t size : entry.shape) bytes *= static_cast<std::uint64_t>(size);
    entry.begin = at;
    entry.end = at += bytes;
  }
  return at;
}

std::string safetensors_header(std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorEntry& entry : entries) {
    base::check(!header.contains(entry.name), fmt::format("tensor {} is stored once", entry.name));
    header[entry.name] = {{"dtype", dtype_name(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string json = header.dump();
  while ((length_bytes + json.size()) % header_alignment != 0) json += ' ';
  const std::uint64_t length = json.size();
  std::string text(length_bytes, '\0');
  std::memcpy(text.data(), &length, length_bytes);
  return text + json;
}

at::Tensor tensor_of(std::span<const std::byte> bytes, at::ScalarType dtype, at::IntArrayRef shape) {
  const auto options = at::TensorOptions().dtype(dtype);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % c10::elementSize(dtype) == 0)
    return at::from_blob(const_cast<std::byte*>(bytes.data()), shape, options);  // only read
  at::Tensor copy = at::empty(shape, options);
  std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
  return copy;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  base::SafetensorsHeader header = base::read_safetensors_header(file_.bytes(), path);
  data_ = file_.bytes().subspan(header.data_begin);
  metadata_ = std::move(header.metadata);
  for (base::StoredTensor& tensor : header.tensors) {
    by_name_[tensor.name] = entries_.size();
    entries_.push_back({.name = std::move(tensor.name),
                        .dtype = dtype_named(tensor.dtype),
                        .shape = std::move(tensor.shape),
                        .begin = tensor.begin,
                        .end = tensor.end});
  }
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace lockstep::checkpoint
