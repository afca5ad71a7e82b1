// A Parquet file as rows of JSON: one object a row, with the columns as its members.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::text {

// Reads front to back, page by page: memory does not grow with the file. One thread at a time.
class ParquetRows {
 public:
  // `file`: all its bytes, mapped; they must outlive this. `name` is for errors, which are UserError(ExitCode::data).
  ParquetRows(std::string_view file, std::string name);
  ~ParquetRows();
  ParquetRows(const ParquetRows&) = delete;

  std::uint64_t count() const { return count_; }  // as the footer has it
  // Some rows, each a line; nothing at the end.
  std::optional<std::string> next_lines();

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::string name_;
  std::uint64_t count_ = 0;
};

}  // namespace lockstep::text
