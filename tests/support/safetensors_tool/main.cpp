// Lets the parity test drive our safetensors: `write FILE` makes a file of known tensors, `list FILE` says what we read in one.
#include <cstdio>
#include <iostream>

#include <ATen/ops/arange.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/crc32c.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/safetensors.h"
#include "support/safetensors_tool/write_safetensors.h"

namespace lockstep::checkpoint {
namespace {

// Tensor NAME of n elements holds 0, 1, ... n - 1, cut to its type.
void write(const std::filesystem::path& path) {
  std::vector<NamedTensor> contents;
  const std::pair<const char*, at::ScalarType> dtypes[] = {
      {"f64", at::kDouble}, {"f32", at::kFloat}, {"f16", at::kHalf}, {"bf16", at::kBFloat16}, {"i64", at::kLong},
      {"i32", at::kInt},    {"i16", at::kShort}, {"i8", at::kChar},  {"u8", at::kByte},       {"bool", at::kBool}};
  for (const auto& [name, dtype] : dtypes)
    contents.push_back({name, at::arange(105, at::kFloat).remainder(dtype == at::kBool ? 2 : 128).to(dtype).view({7, 3, 5})});
  contents.push_back({"scalar", at::full({}, 2.5)});
  contents.push_back({"empty", at::empty({0, 4})});
  contents.push_back({"name with \"quotes\" and \u00e9", at::ones({3})});
  support::write_safetensors(path, contents, {{"format", "pt"}, {"step", "7"}});
}

void list(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  nlohmann::ordered_json listed = {{"metadata", file.metadata()}, {"tensors", nlohmann::ordered_json::object()}};
  for (const TensorEntry& entry : file.entries()) {
    listed["tensors"][entry.name] = {
        {"dtype", dtype_name(entry.dtype)}, {"shape", entry.shape}, {"crc32c", base::crc32c(file.bytes(entry))}};
  }
  std::cout << listed.dump() << "\n";
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: safetensors_tool write|list FILE\n"), 2;
  try {
    const std::string_view verb = argv[1];
    if (verb == "write") lockstep::checkpoint::write(argv[2]);
    if (verb == "list") lockstep::checkpoint::list(argv[2]);
  } catch (const lockstep::base::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
