// Scalars for TensorBoard: an event file in the run folder's tensorboard/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/file/patient_writer.h"
#include "journal/scalars/scalars.h"

namespace lockstep::journal {

// Like metrics.jsonl, it outlives a full disk: scalars wait in memory (16 MiB) until there is room.
class TensorBoardWriter final : public ScalarWriter {
 public:
  // Readers leave out what an earlier start wrote past the step that this one was resumed at.
  TensorBoardWriter(const std::filesystem::path& folder, std::int64_t resumed_at_step, base::FileSystem& files = base::real_files(),
                    base::PatientWriter::Options patience = {});
  void write(std::int64_t step, std::span<const Scalar> scalars) override;

 private:
  void append(std::string_view records);
  base::PatientWriter records_;
};

}  // namespace lockstep::journal
