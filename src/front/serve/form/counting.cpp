// One thread, and what it has counted so far.
#include "front/serve/form/counting.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/quiet_thread.h"
#include "config/config.h"
#include "config/table/values.h"
#include "corpus/prepare/prepare.h"
#include "corpus/samples/split.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_bytes = 64 << 20;
constexpr std::size_t most_kept = 64;

struct Files {
  std::uint64_t bytes = 0;
  std::int64_t newest = 0;
};

void take(const fs::directory_entry& entry, Files& files) {
  std::error_code error;
  if (!entry.is_regular_file(error)) return;
  files.bytes += entry.file_size(error);
  files.newest = std::max(files.newest, static_cast<std::int64_t>(entry.last_write_time(error).time_since_epoch().count()));
}

Files files_at(const fs::path& path) {
  Files files;
  std::error_code error;
  take(fs::directory_entry(path, error), files);
  if (!fs::is_directory(path, error)) return files;
  for (const auto& entry : fs::directory_iterator(path, error)) take(entry, files);
  return files;
}

// All that decides how many samples there are.
std::string key_of(const config::RunConfig& config, const Files& files) {
  std::string key = fmt::format("{} {} {}", files.bytes, files.newest, config.trainer.seed);
  for (const config::KeyValue& one : config::key_values(config)) {
    if (one.key.starts_with("data.") || one.key.starts_with("model.")) key += fmt::format("\n{}={}", one.key, one.value);
  }
  return key;
}

}  // namespace

Counting::Counting() {
  thread_ = base::quiet_thread([this] { work(); });
}

Counting::~Counting() {
  {
    base::Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Counting::Count Counting::of(const config::RunConfig& config) {
  corpus::check_data_exists(config);
  const bool made_up = corpus::kind_of(config.data) == config::DataKind::stories;
  if (!made_up && !corpus::needs_preparing(config.data, config.model)) return {.samples = corpus::count_training_samples(config)};
  const Files files = made_up ? Files() : files_at(config.data.path);
  if (files.bytes > most_bytes) return {};
  const std::string key = key_of(config, files);
  base::Lock lock(mutex_);
  if (const auto found = counted_.find(key); found != counted_.end()) return found->second;
  if (working_ != key) {
    wanted_ = Wanted{key, config};
    changed_.notify_all();
  }
  return {.underway = true};
}

void Counting::work() {
  for (;;) {
    Wanted wanted;
    {
      base::Lock lock(mutex_);
      changed_.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex_) { return closing_ || wanted_; });
      if (closing_) return;
      wanted = std::move(*wanted_);
      wanted_.reset();
      working_ = wanted.key;
    }
    Count count;
    try {
      count.samples = corpus::count_training_samples(wanted.config);
    } catch (const base::UserError& error) {
      count.mistake = error.what();
    } catch (const std::exception& error) {
      count.mistake = error.what();
    }
    base::Lock lock(mutex_);
    working_.clear();
    if (counted_.size() >= most_kept) counted_.clear();
    counted_[wanted.key] = count;
  }
}

}  // namespace lockstep::serve
