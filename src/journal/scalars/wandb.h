// A run for Weights & Biases: the file that `wandb sync` uploads, written without its library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file/patient_writer.h"
#include "base/files.h"
#include "journal/scalars/scalars.h"

namespace lockstep::journal {

// FOLDER/offline-run-DATE_TIME-ID/run-ID.wandb. Each start of a run writes a file of its own, under the same id: whoever uploads them in
// turn has one run. Like metrics.jsonl it outlives a full disk, unless that lasts until more than 16 MiB wait.
class WandbWriter final : public ScalarWriter {
 public:
  struct Options {
    std::string id;    // tells the run from others; letters, digits and dashes
    std::string name;  // for people
    std::string project = "lockstep";
    std::int64_t resumed_at_step = 0;
    std::vector<std::pair<std::string, std::string>> settings = {};  // key, and value as people write it
    base::FileSystem* files = nullptr;                               // null: the real ones
  };
  WandbWriter(const std::filesystem::path& folder, const Options& options);
  ~WandbWriter() override;  // says that the run has ended
  WandbWriter(const WandbWriter&) = delete;
  WandbWriter& operator=(const WandbWriter&) = delete;
  void write(std::int64_t step, std::span<const Scalar> scalars) override;

 private:
  void put_record(std::string_view record);
  static void put_block_piece(std::string& out, std::string_view piece, int kind);
  void append(const std::string& bytes);

  base::PatientWriter bytes_;
  std::int64_t records_ = 0;
  std::uint64_t offset_ = 0;  // of the file
  double begun_;              // seconds since 1970
  bool lost_ = false;         // bytes: what came behind them could not be read
};

}  // namespace lockstep::journal
