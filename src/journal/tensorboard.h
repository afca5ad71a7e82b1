// Scalars for TensorBoard: an event file in the run folder's tensorboard/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/file/patient_writer.h"

namespace lockstep::journal {

// Like metrics.jsonl, it outlives a full disk: scalars wait in memory (16 MiB) until there is room.
class TensorBoardWriter {
 public:
  // Readers leave out what an earlier start wrote past the step that this one was resumed at.
  TensorBoardWriter(const std::filesystem::path& folder, std::int64_t resumed_at_step, base::FileSystem& files = base::real_files(),
                    base::PatientWriter::Options patience = {});
  void add(std::string_view tag, std::int64_t step, double value);

 private:
  void write_record(const std::string& event);
  base::PatientWriter records_;
};

}  // namespace lockstep::journal
