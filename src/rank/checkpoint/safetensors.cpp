// Writing safetensors headers, and reading them without trusting a byte.
#include "rank/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // what the format's own library accepts
constexpr std::size_t header_alignment = 4096;         // a page: data can be written past the page cache and mapped aligned

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

// Collects what is wrong with one file under its name.
class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& path, std::uint64_t data_bytes) : path_(path), data_bytes_(data_bytes) {}

  TensorEntry entry(const std::string& name, const Json& value) const {
    TensorEntry entry{.name = name, .shape = {}};
    if (!value.is_object()) throw error(name, "its entry is no object");
    entry.dtype = dtype(name, member(name, value, "dtype"));
    const Json& shape = member(name, value, "shape");
    if (!shape.is_array()) throw error(name, "its shape is no list");
    unsigned __int128 bytes = c10::elementSize(entry.dtype);
    for (const Json& size : shape) {
      entry.shape.push_back(static_cast<std::int64_t>(number(name, size, "a size in its shape")));
      bytes *= static_cast<std::uint64_t>(entry.shape.back());
      // A later 0 would make it small again; no honest file has such a shape.
      if (bytes > std::uint64_t{1} << 60) throw error(name, "its shape is larger than any memory");
    }
    const Json& offsets = member(name, value, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) throw error(name, "its data_offsets are no pair");
    entry.begin = number(name, offsets[0], "its data_offsets");
    entry.end = number(name, offsets[1], "its data_offsets");
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      throw error(name, fmt::format("its bytes {} to {} lie outside the {} bytes of data", entry.begin, entry.end, data_bytes_));
    }
    if (entry.bytes() != static_cast<std::uint64_t>(bytes)) {
      throw error(name,
                  fmt::format("its shape needs {} bytes, its data_offsets give {}", static_cast<std::uint64_t>(bytes), entry.bytes()));
    }
    return entry;
  }

  // Entries in the order of their bytes must follow each other without overlap or gap, to the end of the file.
  void check_cover(const std::vector<TensorEntry>& entries) const {
    std::uint64_t at = 0;
    std::string_view before = "the header";
    for (const TensorEntry& entry : entries) {
      if (entry.begin < at) throw error(entry.name, fmt::format("its bytes overlap those of {}", before));
      if (entry.begin > at) throw error(entry.name, fmt::format("{} bytes before it belong to no tensor", entry.begin - at));
      at = entry.end;
      before = entry.name;
    }
    if (at != data_bytes_) throw error("", fmt::format("{} bytes at its end belong to no tensor", data_bytes_ - at));
  }

  base::UserError error(std::string_view tensor, std::string_view what) const {
    if (tensor.empty()) return base::checkpoint_error("checkpoint", "{} is damaged or no safetensors file: {}.", path_.string(), what);
    return base::checkpoint_error("checkpoint", "{} is damaged: tensor {}: {}.", path_.string(), tensor, what);
  }

 private:
  const Json& member(const std::string& name, const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) throw error(name, fmt::format("it has no {}", key));
    return *found;
  }
  at::ScalarType dtype(const std::string& name, const Json& value) const {
    if (!value.is_string()) throw error(name, "its dtype is no text");
    const auto text = value.get<std::string>();
    for (const auto& [known, dtype] : dtypes) {
      if (known == text) return dtype;
    }
    throw error(name, fmt::format("its dtype '{}' is unknown", text));
  }
  std::uint64_t number(const std::string& name, const Json& value, std::string_view what) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{1} << 60) {
      throw error(name, fmt::format("{} is no size: {}", what, value.dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
    return value.get<std::uint64_t>();
  }

  const std::filesystem::path& path_;
  std::uint64_t data_bytes_;
};

// nlohmann keeps the last of two equal keys; a file that names a tensor twice is not to be trusted with either.
Json parse_header(std::string_view text, const HeaderReader& reader) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second) twice = value.get<std::string>();
    return true;
  };
  Json header = Json::parse(text, watch, false);
  if (header.is_discarded()) throw reader.error("", "its header is no JSON");
  if (!header.is_object()) throw reader.error("", "its header is no JSON object");
  if (!twice.empty()) throw reader.error(twice, "it is there twice");
  return header;
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

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const auto bytes = file_.bytes();
  const HeaderReader no_data(path, 0);
  if (bytes.size() < length_bytes) throw no_data.error("", fmt::format("it has only {} bytes", bytes.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), length_bytes);
  if (length > longest_header || length > bytes.size() - length_bytes) {
    throw no_data.error("", fmt::format("its header claims {} bytes, the file has {}", length, bytes.size()));
  }
  data_ = bytes.subspan(length_bytes + length);
  const HeaderReader reader(path, data_.size());
  const Json header = parse_header({reinterpret_cast<const char*>(bytes.data()) + length_bytes, length}, reader);
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries_.push_back(reader.entry(name, value));
      continue;
    }
    if (!value.is_object()) throw reader.error("", "its __metadata__ is no object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) throw reader.error("", fmt::format("its __metadata__ '{}' is no text", key));
      metadata_[key] = text.get<std::string>();
    }
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const TensorEntry& a, const TensorEntry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  reader.check_cover(entries_);
  for (std::size_t i = 0; i < entries_.size(); ++i) by_name_[entries_[i].name] = i;
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace lockstep::checkpoint
