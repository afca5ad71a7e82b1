// Reading what safetensors files say of themselves.
#include "base/file/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace lockstep::base {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // what the format's own library accepts

constexpr std::pair<std::string_view, std::size_t> dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2},    {"I64", 8},
                                                               {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},      {"BOOL", 1},
                                                               {"U64", 8}, {"U32", 4}, {"U16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

// Collects what is wrong with one file under its name.
class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& path, std::uint64_t data_bytes) : path_(path), data_bytes_(data_bytes) {}

  StoredTensor entry(const std::string& name, const Json& value) const {
    StoredTensor entry{.name = name, .dtype = {}, .shape = {}};
    if (!value.is_object()) throw error(name, "its entry is no object");
    entry.dtype = dtype(name, member(name, value, "dtype"));
    const Json& shape = member(name, value, "shape");
    if (!shape.is_array()) throw error(name, "its shape is no list");
    unsigned __int128 bytes = stored_dtype_bytes(entry.dtype);
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
    if (entry.end - entry.begin != static_cast<std::uint64_t>(bytes)) {
      throw error(name, fmt::format("its shape needs {} bytes, its data_offsets give {}", static_cast<std::uint64_t>(bytes),
                                    entry.end - entry.begin));
    }
    return entry;
  }

  // Entries in the order of their bytes must follow each other without overlap or gap, to the end of the file.
  void check_cover(const std::vector<StoredTensor>& entries) const {
    std::uint64_t at = 0;
    std::string_view before = "the header";
    for (const StoredTensor& entry : entries) {
      if (entry.begin < at) throw error(entry.name, fmt::format("its bytes overlap those of {}", before));
      if (entry.begin > at) throw error(entry.name, fmt::format("{} bytes before it belong to no tensor", entry.begin - at));
      at = entry.end;
      before = entry.name;
    }
    if (at != data_bytes_) throw error("", fmt::format("{} bytes at its end belong to no tensor", data_bytes_ - at));
  }

  UserError error(std::string_view tensor, std::string_view what) const {
    if (tensor.empty()) return checkpoint_error("checkpoint", "{} is damaged or no safetensors file: {}.", path_.string(), quotable(what));
    return checkpoint_error("checkpoint", "{} is damaged: tensor {}: {}.", path_.string(), quotable(tensor), quotable(what));
  }

 private:
  const Json& member(const std::string& name, const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) throw error(name, fmt::format("it has no {}", key));
    return *found;
  }
  std::string dtype(const std::string& name, const Json& value) const {
    if (!value.is_string()) throw error(name, "its dtype is no text");
    auto text = value.get<std::string>();
    if (stored_dtype_bytes(text) == 0) throw error(name, fmt::format("its dtype '{}' is unknown", text));
    return text;
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

// A file that names a tensor twice is not to be trusted with either.
Json parse_header(std::string_view text, const HeaderReader& reader) {
  try {
    Json header = parse_json(text, SameNames::refused);
    if (!header.is_object()) throw reader.error("", "its header is no JSON object");
    return header;
  } catch (const JsonError& error) {
    if (error.kind() == JsonError::Kind::named_twice) throw reader.error(error.reason(), "it is there twice");
    throw reader.error("", fmt::format("its header is no JSON: {}", error.what()));
  }
}

// A name in an index must be a file of the folder itself: "../../etc/passwd" is not.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == name.npos && name.find('\0') == name.npos && name != "." && name != ".." &&
         name.ends_with(".safetensors");
}

}  // namespace

std::size_t stored_dtype_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : dtypes)
    if (name == dtype) return bytes;
  return 0;
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const HeaderReader no_data(path, 0);
  if (bytes.size() < length_bytes) throw no_data.error("", fmt::format("it has only {} bytes", bytes.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), length_bytes);
  if (length > longest_header || length > bytes.size() - length_bytes) {
    throw no_data.error("", fmt::format("its header claims {} bytes, the file has {}", length, bytes.size()));
  }
  SafetensorsHeader header{.tensors = {}, .metadata = {}, .data_begin = length_bytes + length};
  const HeaderReader reader(path, bytes.size() - header.data_begin);
  const Json json = parse_header({reinterpret_cast<const char*>(bytes.data()) + length_bytes, length}, reader);
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(reader.entry(name, value));
      continue;
    }
    if (!value.is_object()) throw reader.error("", "its __metadata__ is no object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) throw reader.error("", fmt::format("its __metadata__ '{}' is no text", key));
      header.metadata[key] = text.get<std::string>();
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  reader.check_cover(header.tensors);
  return header;
}

std::map<std::string, std::string> read_safetensors_index(std::string_view text, const std::filesystem::path& path) {
  const Json json = json_if_any(text).value_or(nullptr);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw checkpoint_error("model", "{} is damaged: it is no JSON object with a weight_map.", path.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, value] : json["weight_map"].items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (!is_plain_name(name)) {
      throw checkpoint_error("model", "{} is damaged: tensor {} lies in {}, which is no name of a safetensors file.", path.string(),
                             quotable(tensor), value.dump(-1, ' ', true, Json::error_handler_t::replace));
    }
    files[tensor] = name;
  }
  return files;
}

}  // namespace lockstep::base
