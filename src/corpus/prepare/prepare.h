// Tokenises data once and for all: by whichever process comes first, while the others wait, into a file that all of them map.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "corpus/prepare/cache.h"
#include "corpus/files/files.h"
#include "corpus/formats/language.h"

namespace lockstep::corpus {

struct PrepareOptions {
  int threads = 0;                          // 0: one a core
  std::function<void(double)> on_progress;  // share done, 0 to 1; called often, by one thread at a time
  std::function<void()> on_wait;            // another process is at it already
};

struct Prepared {
  std::shared_ptr<const Cache> cache;
  bool made = false;  // now, by this call; false: it was there
};

// data.path of kind records, or of kind text with a tokenizer: then it is one long row of tokens. Blocks on other processes of this
// machine at most (a lock that the system takes back if its owner dies), so it is called before ranks connect.
// UserError(ExitCode::data) that names file, line, field and fix.
Prepared prepare(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const text::Language>& language,
                 const PrepareOptions& options = {});

// The kind that data.kind or the file's name says.
config::DataKind kind_of(const config::DataConfig& data);
// The settings for reading data.validation_path, which is of the same kind: all of it is used.
config::DataConfig validation_of(const config::DataConfig& data);
// Is there something to prepare?
bool needs_preparing(const config::DataConfig& data, const config::ModelConfig& model);
// data.cache_dir, $LOCKSTEP_CACHE, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep, and in it data/.
std::filesystem::path cache_folder(const config::DataConfig& data);

// The format that data.format names, or that the first readable record is in. UserError where neither tells.
config::RecordFormat choose_format(const Files& files, const config::DataConfig& data);

}  // namespace lockstep::corpus
