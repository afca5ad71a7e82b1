// ParquetRows over the Rust reader.
#include "text/parquet.h"

#include <utility>

#include "base/error.h"
#include "text/native_call.h"

namespace lockstep::text {
namespace {

// Enough for a thread to be busy with, little enough to keep in memory.
constexpr std::uint64_t most_rows = 256;
constexpr std::size_t enough_bytes = 1u << 18;

}  // namespace

struct ParquetRows::Handle {
  lockstep_parquet* rows = nullptr;
  ~Handle() {
    if (rows != nullptr) lockstep_parquet_free(rows);
  }
};

ParquetRows::ParquetRows(std::string_view file, std::string name) : handle_(std::make_unique<Handle>()), name_(std::move(name)) {
  NativeBytes error;
  if (!lockstep_parquet_open(view_of(file), &handle_->rows, &count_, error.out()))
    throw base::data_error("data", "{} cannot be read as Parquet: {}. Copy or write it again.", name_, error.view());
}

ParquetRows::~ParquetRows() = default;

std::optional<std::string> ParquetRows::next_lines() {
  NativeBytes lines, error;
  if (!lockstep_parquet_read(handle_->rows, most_rows, enough_bytes, lines.out(), error.out()))
    throw base::data_error("data", "{} cannot be read as Parquet: {}. Copy or write it again.", name_, error.view());
  if (lines.view().empty()) return std::nullopt;
  return lines.text();
}

}  // namespace lockstep::text
