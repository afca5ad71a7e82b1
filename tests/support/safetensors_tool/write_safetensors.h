// A list of tensors as one safetensors file, for programs that Python tests speak to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/safetensors.h"

namespace lockstep::support {

inline void write_safetensors(const std::filesystem::path& path, const std::vector<checkpoint::NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}}) {
  std::vector<checkpoint::TensorEntry> entries;
  std::map<std::string, at::Tensor> by_name;
  for (const checkpoint::NamedTensor& tensor : tensors) {
    entries.push_back({tensor.name, tensor.tensor.scalar_type(), tensor.tensor.sizes().vec()});
    by_name[tensor.name] = tensor.tensor.contiguous();
  }
  checkpoint::lay_out(entries);
  const std::string header = checkpoint::safetensors_header(entries, metadata);
  auto file = base::real_files().create(path);
  file->write(std::as_bytes(std::span(header.data(), header.size())));
  for (const checkpoint::TensorEntry& entry : entries)
    file->write({static_cast<const std::byte*>(by_name.at(entry.name).data_ptr()), entry.bytes()});
  file->sync_and_close();
}

}  // namespace lockstep::support
