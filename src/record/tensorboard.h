// Scalars for TensorBoard: an event file in the run folder's tensorboard/.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::record {

class TensorBoardWriter {
 public:
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  void add(std::string_view tag, std::int64_t step, double value);

 private:
  void write_record(const std::string& event);
  std::FILE* file_ = nullptr;
};

}  // namespace lockstep::record
