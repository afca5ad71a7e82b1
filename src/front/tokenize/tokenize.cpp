// Workers encode chunks side by side; the calling thread writes them in order.
#include "front/tokenize/tokenize.h"

#include <algorithm>
#include <exception>
#include <map>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/mutex.h"
#include "front/tokenize/cut.h"

namespace lockstep::tokenize {
namespace {

struct Done {
  std::vector<std::byte> bytes;
  std::uint64_t bytes_read = 0;
  std::int64_t documents = 0, tokens = 0, bad_lines = 0;
  std::exception_ptr failure;
};

class Encoder {
 public:
  Encoder(const text::Tokenizer& tokenizer, const TokenizeOptions& options) : tokenizer_(tokenizer), options_(options) {}

  Done encode(const Chunk& chunk, bool starts_document) const {
    Done done{.bytes_read = chunk.file_bytes};
    try {
      std::vector<std::string> texts;
      done.bad_lines = for_each_document(chunk, options_.inputs, [&](std::string_view text) { texts.emplace_back(text); });
      const bool part = chunk.kind == ChunkKind::text_part;
      for (const std::string& text : texts) {
        if ((!part || starts_document) && options_.before_document) append(*options_.before_document, done);
        encode_text(text, done);
        if ((!part || chunk.ends_document) && options_.after_document) append(*options_.after_document, done);
        if (!part || chunk.ends_document) ++done.documents;
      }
    } catch (...) {
      done.failure = std::current_exception();
    }
    return done;
  }

 private:
  void append(std::int32_t token, Done& done) const {
    const auto* bytes = reinterpret_cast<const std::byte*>(&token);  // little-endian, as token files are
    done.bytes.insert(done.bytes.end(), bytes, bytes + options_.token_bytes);
    ++done.tokens;
  }

  // A long document goes in parts, so that memory does not grow with it.
  void encode_text(std::string_view text, Done& done) const {
    while (!text.empty()) {
      const std::size_t most = 4 * options_.chunk_bytes;
      const auto cut = text.size() > most ? find_cut(tokenizer_, text, options_.chunk_bytes) : std::nullopt;
      const std::string_view piece = text.substr(0, cut.value_or(text.size()));
      for (const std::int32_t token : tokenizer_.encode(piece, text::SpecialTokens::leave_out)) append(token, done);
      text.remove_prefix(piece.size());
    }
  }

  const text::Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
};

// Finished chunks, handed out in order. Workers wait while too many are finished ahead of their turn.
class InOrder {
 public:
  explicit InOrder(std::int64_t ahead) : ahead_(ahead) {}

  void put(std::int64_t index, Done done) {
    base::Lock lock(mutex_);
    changed_.wait(lock, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopped_ || index < next_ + ahead_; });
    finished_.emplace(index, std::move(done));
    changed_.notify_all();
  }
  // Nothing: all were handed out, or `wait` is over (then more() is true).
  std::optional<Done> take(std::chrono::milliseconds wait) {
    base::Lock lock(mutex_);
    changed_.wait_for(lock, wait, [&]() LOCKSTEP_REQUIRES(mutex_) { return finished_.contains(next_) || workers_ == 0; });
    const auto found = finished_.find(next_);
    if (found == finished_.end()) return std::nullopt;
    Done done = std::move(found->second);
    finished_.erase(found);
    ++next_;
    changed_.notify_all();
    return done;
  }
  bool more() {
    const base::Lock lock(mutex_);
    return workers_ > 0 || !finished_.empty();
  }
  void worker_starts() {
    const base::Lock lock(mutex_);
    ++workers_;
  }
  void worker_ends() {
    const base::Lock lock(mutex_);
    --workers_;
    changed_.notify_all();
  }
  void stop() {
    const base::Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  bool stopped() {
    const base::Lock lock(mutex_);
    return stopped_;
  }

 private:
  base::Mutex mutex_;
  base::Condition changed_;
  const std::int64_t ahead_;
  std::map<std::int64_t, Done> finished_ LOCKSTEP_GUARDED_BY(mutex_);
  std::int64_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int workers_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool stopped_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

class Job {
 public:
  Job(const text::Tokenizer& tokenizer, const TokenizeOptions& options)
      : options_(options),
        threads_(options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))),
        reader_(options.inputs, options.chunk_bytes,
                [&tokenizer](std::string_view text, std::size_t middle) { return find_cut(tokenizer, text, middle); }),
        encoder_(tokenizer, options),
        finished_(std::int64_t{4} * threads_) {}

  Totals run(base::FileWriter& file, const Progress& progress) {
    std::vector<std::jthread> workers;
    const struct Stop {  // before the threads are joined, whatever happens
      InOrder& finished;
      ~Stop() { finished.stop(); }
    } stop{finished_};
    for (int i = 0; i < threads_; ++i) {
      finished_.worker_starts();
      workers.emplace_back([this] { work(); });
    }
    Totals totals{.bytes = reader_.total_bytes()};
    while (finished_.more()) {
      if (const auto done = finished_.take(std::chrono::milliseconds(200))) {
        if (done->failure) {
          finished_.stop();
          std::rethrow_exception(done->failure);
        }
        file.write(done->bytes);
        totals.bytes_read += done->bytes_read;
        totals.documents += done->documents;
        totals.tokens += done->tokens;
        totals.bad_lines += done->bad_lines;
      }
      progress(totals);
    }
    return totals;
  }

 private:
  void work() {
    while (!finished_.stopped()) {
      std::optional<Chunk> chunk;
      try {
        chunk = reader_.next();
      } catch (...) {
        // Reading failed where the next chunk would have been: everything before it is written first.
        finished_.put(reader_.chunks(), Done{.failure = std::current_exception()});
        break;
      }
      if (!chunk) break;
      finished_.put(chunk->index, encoder_.encode(*chunk, chunk->offset == 0));
    }
    finished_.worker_ends();
  }

  const TokenizeOptions& options_;
  int threads_;
  ChunkReader reader_;
  Encoder encoder_;
  InOrder finished_;
};

}  // namespace

Totals tokenize_files(const text::Tokenizer& tokenizer, const TokenizeOptions& options, const Progress& progress) {
  Job job(tokenizer, options);
  base::FileSystem& files = base::real_files();
  const std::filesystem::path partial = options.output.string() + ".partial";
  try {
    const auto file = files.create(partial);
    const Totals totals = job.run(*file, progress);
    if (totals.tokens == 0) throw base::data_error("data", "the input has no text, so there are no tokens to write.");
    file->sync_and_close();
    files.rename(partial, options.output);
    return totals;
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

}  // namespace lockstep::tokenize
