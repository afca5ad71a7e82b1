// Key, lock, tokenize, rename.
#include "corpus/prepare/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/file/cache_folder.h"
#include "base/file/descriptor.h"
#include "base/text.h"
#include "config/config.h"
#include "base/hash/content_hash.h"
#include "corpus/formats/encode.h"
#include "corpus/prepare/file_hash.h"
#include "corpus/files/files.h"
#include "corpus/formats/format.h"
#include "corpus/formats/names.h"
#include "corpus/prepare/tokenize.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

// Changes whenever the same input would give other tokens, masks or another layout.
constexpr std::int64_t format_version = 2;

// Everything that decides what the cache holds.
std::string key_of(const config::DataConfig& data, std::int64_t seq_len, bool as_text, const Files& files, const text::Language& language,
                   const fs::path& folder) {
  base::ContentHash hash;
  hash.add(format_version).add(as_text ? 1 : 0).add(language.identity());
  for (std::size_t file = 0; file < files.count(); ++file) {
    hash.add(base::lower(files.path(file).extension().string())).add(hash_file(files.path(file), files.bytes(file), folder));
  }
  if (as_text) return hash.hex();
  hash.add(seq_len).add(static_cast<std::int64_t>(data.format)).add(static_cast<std::int64_t>(data.train_on));
  hash.add(static_cast<std::int64_t>(data.too_long)).add(static_cast<std::int64_t>(data.bad_records)).add(data.max_samples);
  hash.add(static_cast<std::int64_t>(data.prompt_style));
  for (const std::string* text :
       {&data.system_prompt, &data.messages_field, &data.prompt_field, &data.completion_field, &data.text_field, &data.system_field,
        &data.input_field, &data.history_field, &data.tools_field, &data.role_field, &data.content_field})
    hash.add(*text);
  for (const std::string& role : data.roles) hash.add(role);
  return hash.hex();
}

// Held by one process at a time; the system takes it back from one that dies.
class Lock {
 public:
  Lock(const fs::path& path, const std::function<void()>& on_wait)
      : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (!descriptor_.open()) {
      throw base::data_error("data", "cannot write {}: {}. Set data.cache_dir to a folder you may write to.", path.string(),
                             base::why_refused(path, errno, base::Access::write));
    }
    if (::flock(descriptor_.number(), LOCK_EX | LOCK_NB) == 0) return;
    if (on_wait) on_wait();
    while (::flock(descriptor_.number(), LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      throw base::data_error("data", "cannot lock {}: {}. Set data.cache_dir to a local folder.", path.string(), std::strerror(errno));
    }
  }
  // Only once the cache is there: whoever still waits, or comes later with a lock of his own, finds it.
  void remove_file() const { ::unlink(path_.c_str()); }

 private:
  fs::path path_;
  base::Descriptor descriptor_;
};

[[noreturn]] void nothing_to_train(const Files& files, const Counts& counts) {
  if (counts.records == 0) throw base::data_error("data", "{} has no records: it is empty.", files.names());
  throw base::data_error("data",
                         "none of the {} records of {} can be trained: {} have nothing to train, {} are too long, {} cannot be read. {}.",
                         counts.records, files.names(), counts.untrained, counts.too_long, counts.bad,
                         counts.examples.empty() ? "Look at them with `lockstep data inspect`" : "For example: " + counts.examples.front());
}

Counts make(const config::DataConfig& data, std::int64_t seq_len, bool as_text, const Files& files,
            const std::shared_ptr<const text::Language>& language, const PrepareOptions& options, CacheWriter& writer) {
  std::optional<Encoder> encoder;
  if (!as_text) encoder.emplace(language, data, choose_format(files, data), seq_len);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Counts counts = tokenize({.files = files,
                            .data = data,
                            .language = *language,
                            .encoder = encoder ? &*encoder : nullptr,
                            .threads = options.threads > 0 ? options.threads : cores,
                            .on_progress = options.on_progress},
                           writer);
  if (counts.samples == 0) nothing_to_train(files, counts);
  counts.format = config::name_of(encoder ? encoder->format() : config::RecordFormat::text);
  return counts;
}

void remove_partial(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path.string() + ".partial", ignored);
}

}  // namespace

config::DataKind kind_of(const config::DataConfig& data) {
  if (data.kind != config::DataKind::automatic) return data.kind;
  if (data.path.empty()) return config::DataKind::stories;
  static constexpr std::array<std::string_view, 6> of_records = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"};
  std::string ending = base::lower(fs::path(data.path).extension().string());
  std::error_code error;
  if (fs::is_directory(data.path, error) || std::find(of_records.begin(), of_records.end(), ending) != of_records.end())
    return config::DataKind::records;
  return ending == ".bin" ? config::DataKind::bin : config::DataKind::text;
}

config::DataConfig validation_of(const config::DataConfig& data) {
  config::DataConfig other = data;
  other.path = data.validation_path;
  other.max_samples = 0;
  const config::DataKind kind = kind_of(data);
  const bool made = kind == config::DataKind::stories || kind == config::DataKind::random;
  if (made) other.kind = config::DataKind::automatic;
  if (kind == config::DataKind::records) other.kind = kind;
  if (kind != config::DataKind::records && kind_of(other) == config::DataKind::records) {
    throw base::data_error("data", "data.validation_path={} holds records, but the training data is of kind {}. Both must be of one kind.",
                           other.path, config::name_of(kind));
  }
  return other;
}

bool needs_preparing(const config::DataConfig& data, const config::ModelConfig& model) {
  const config::DataKind kind = kind_of(data);
  return kind == config::DataKind::records || (kind == config::DataKind::text && !tokenizer_path(data, model).empty());
}

fs::path cache_folder(const config::DataConfig& data) {
  if (!data.cache_dir.empty()) return fs::path(data.cache_dir) / "data";
  if (const fs::path folder = base::cache_folder(); !folder.empty()) return folder / "data";
  throw base::data_error("data",
                         "there is no place for tokenized data: neither HOME nor LOCKSTEP_CACHE is set. Set data.cache_dir to a folder.");
}

config::RecordFormat choose_format(const Files& files, const config::DataConfig& data) {
  if (data.format != config::RecordFormat::automatic) return data.format;
  Scanner scanner(files);
  while (const auto raw = scanner.next()) {
    try {
      const Json record = files.parse(*raw);
      refuse_other_trainings(record, data);
      if (const auto format = detect_format(record, data)) return *format;
      throw Unreadable(
          fmt::format("has the fields {}, which are of no known format. Known are messages (a list of role and content), conversations "
                      "(a list of from and value), instruction and output, prompt and completion, and text; name other fields with "
                      "data.messages_field, data.prompt_field, data.completion_field or data.text_field",
                      fields_of(record)));
    } catch (const Unreadable& problem) {
      if (data.bad_records == config::BadRecord::skip) continue;
      throw base::data_error("data", "{}: the first record {}.", files.place(*raw, problem.lines_below()), problem.what());
    }
  }
  Scanner again(files);
  if (again.next()) {
    throw base::data_error("data",
                           "no record of {} can be read, so its format is unknown. Look at the first lines, or set data.bad_records=error.",
                           files.names());
  }
  throw base::data_error("data", "{} has no records: it is empty.", files.names());
}

Prepared prepare(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const text::Language>& language,
                 const PrepareOptions& options) {
  base::check(language != nullptr, "records are read with a tokenizer");
  const bool as_text = kind_of(data) == config::DataKind::text;
  const Files files(data.path, as_text);
  const fs::path folder = cache_folder(data);
  try {
    base::real_files().create_directories(folder);
  } catch (const base::UserError& error) {
    throw base::data_error("data", "tokenized data cannot be kept: {} Set data.cache_dir to a folder you may write to.", error.what());
  }
  const std::string key = key_of(data, seq_len, as_text, files, *language, folder);
  const fs::path path = folder / (key + ".lsd");
  if (auto cache = Cache::open(path, key, Cache::Verify::content)) return {std::move(cache), false};

  const Lock lock(folder / (key + ".lock"), options.on_wait);
  if (auto cache = Cache::open(path, key, Cache::Verify::content)) return {std::move(cache), false};
  try {
    CacheWriter writer(base::real_files(), path, key);
    writer.finish(make(data, seq_len, as_text, files, language, options, writer));
  } catch (const base::UserError& error) {
    remove_partial(path);
    if (error.code() != base::ExitCode::checkpoint) throw;
    throw base::data_error("data", "tokenized data cannot be kept: {} Set data.cache_dir to a folder with room.", error.what());
  } catch (...) {  // whoever hears of the progress wants no more of it
    remove_partial(path);
    throw;
  }
  lock.remove_file();
  auto cache = Cache::open(path, key, Cache::Verify::sizes);
  base::check(cache != nullptr, "a cache that was just written can be read");
  return {std::move(cache), true};
}

}  // namespace lockstep::corpus
