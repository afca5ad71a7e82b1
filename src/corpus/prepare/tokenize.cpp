// Threads take chunks of records in turn, tokenize them side by side, and hand them over in order.
#include "corpus/prepare/tokenize.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/mutex.h"
#include "config/config.h"
#include "corpus/formats/format.h"

namespace lockstep::corpus {
namespace {

constexpr std::size_t chunk_records = 256, chunk_bytes = 1u << 18;
constexpr std::size_t most_examples = 5;

struct Chunk {
  std::int64_t number = 0;
  std::uint64_t first_record = 0;
  std::vector<RawRecord> records;
  std::exception_ptr broken_after;  // the files cannot be read past the last record
  double progress = 0;
};

// A chunk in tokens.
struct Output {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> trained;
  struct Sample {
    std::size_t length;
    SampleEntry origin;
  };
  std::vector<Sample> samples;
  Counts counts;
  std::exception_ptr error;
};

class Tokenizing {
 public:
  Tokenizing(const Job& job, CacheWriter& writer) : job_(job), writer_(writer), scanner_(job.files) {}

  Counts run() {
    std::vector<std::thread> threads;
    for (int i = 1; i < job_.threads; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    const base::Lock lock(writing_);
    if (error_) std::rethrow_exception(error_);
    return counts_;
  }

 private:
  void work() {
    while (const auto chunk = next_chunk()) {
      const Output output = tokenize(*chunk);
      if (!hand_over(*chunk, output)) return;
    }
  }

  std::optional<Chunk> next_chunk() {
    const base::Lock lock(scanning_);
    if (scanned_) return std::nullopt;
    Chunk chunk{.number = chunks_++, .first_record = records_};
    std::size_t bytes = 0;
    try {
      while (chunk.records.size() < chunk_records && bytes < chunk_bytes) {
        const bool enough = job_.data.max_samples > 0 && records_ >= static_cast<std::uint64_t>(job_.data.max_samples);
        const auto record = enough ? std::nullopt : scanner_.next();
        if (!record) {
          scanned_ = true;
          break;
        }
        bytes += record->bytes.size();
        chunk.records.push_back(*record);
        ++records_;
      }
    } catch (...) {
      chunk.broken_after = std::current_exception();
      scanned_ = true;
    }
    chunk.progress = static_cast<double>(scanner_.bytes_read()) / static_cast<double>(std::max<std::uint64_t>(1, job_.files.total_bytes()));
    return chunk;
  }

  Output tokenize(const Chunk& chunk) const {
    Output output;
    try {
      for (std::size_t i = 0; i < chunk.records.size(); ++i) {
        const SampleEntry origin{0, chunk.records[i].file, chunk.records[i].line, chunk.first_record + i};
        if (job_.encoder)
          add_record(chunk.records[i], origin, output);
        else
          add_text(chunk.records[i], origin, output);
      }
      if (chunk.broken_after) std::rethrow_exception(chunk.broken_after);
    } catch (...) {
      output.error = std::current_exception();
    }
    return output;
  }

  void add_record(const RawRecord& raw, const SampleEntry& origin, Output& output) const {
    ++output.counts.records;
    try {
      const Json record = job_.files.parse(raw);
      const Tokenized whole = encode(record);
      const Fitted fitted = job_.encoder->fit(whole);
      count(fitted, whole, output.counts);
      if (fitted.fate == Fate::untrained) add_example(output.counts, job_.files.place(raw) + " has nothing to train");
      if (fitted.fate == Fate::too_long)
        add_example(output.counts, fmt::format("{} has {} tokens", job_.files.place(raw), whole.tokens.size()));
      for (const Piece& piece : fitted.pieces) add_piece(whole, piece, origin, output);
    } catch (const Refused& problem) {
      throw base::data_error("data", "{}: the record {}.", job_.files.place(raw, problem.lines_below()), problem.what());
    } catch (const Unreadable& problem) {
      const std::string place = job_.files.place(raw, problem.lines_below());
      if (job_.data.bad_records == config::BadRecord::error) {
        throw base::data_error("data", "{}: the record {}. Mend it, or set data.bad_records=skip to pass over such records.", place,
                               problem.what());
      }
      ++output.counts.bad;
      add_example(output.counts, fmt::format("{} {}", place, problem.what()));
    }
  }

  Tokenized encode(const Json& record) const {
    try {
      return job_.encoder->encode(record);
    } catch (const Refused&) {
      throw;
    } catch (const Unreadable& problem) {
      const auto looks_like = detect_format(record, job_.data);
      if (!looks_like || *looks_like == job_.encoder->format()) throw;
      throw Unreadable(
          fmt::format("{}: it looks like {}, but the records are read as {}. One run takes one format: split the file, or name the "
                      "format with data.format",
                      problem.what(), config::name_of(*looks_like), config::name_of(job_.encoder->format())));
    }
  }

  // Raw text is no records: its chunks follow each other without a seam, and the end of a file ends the text.
  void add_text(const RawRecord& raw, const SampleEntry& origin, Output& output) const {
    ++output.counts.records;
    Tokenized whole;
    try {
      job_.files.parse(raw);  // UTF-8 or not
    } catch (const Unreadable& problem) {
      throw base::data_error("data", "{}: the text {}.", job_.files.place(raw, problem.lines_below()), problem.what());
    }
    whole.tokens = job_.language.encode(raw.bytes, text::SpecialTokens::leave_out).tokens;
    const std::string_view file = job_.files.bytes(raw.file);
    if (raw.bytes.data() + raw.bytes.size() == file.data() + file.size()) {
      if (const auto end = job_.language.end()) whole.tokens.push_back(*end);
    }
    whole.trained.assign(whole.tokens.size(), 1);
    add_piece(whole, {0, whole.tokens.size()}, origin, output);
  }

  static void count(const Fitted& fitted, const Tokenized& whole, Counts& counts) {
    if (fitted.fate == Fate::cut) {
      ++counts.cut;
      counts.cut_tokens += static_cast<std::int64_t>(whole.tokens.size() - (fitted.pieces[0].end - fitted.pieces[0].begin));
    }
    if (fitted.fate == Fate::pieces) ++counts.in_pieces;
    if (fitted.fate == Fate::too_long) ++counts.too_long;
    if (fitted.fate == Fate::untrained) ++counts.untrained;
  }

  static void add_piece(const Tokenized& whole, const Piece& piece, const SampleEntry& origin, Output& output) {
    const auto first = static_cast<std::ptrdiff_t>(piece.begin), last = static_cast<std::ptrdiff_t>(piece.end);
    output.tokens.insert(output.tokens.end(), whole.tokens.begin() + first, whole.tokens.begin() + last);
    output.trained.insert(output.trained.end(), whole.trained.begin() + first, whole.trained.begin() + last);
    output.samples.push_back({piece.end - piece.begin, origin});
    ++output.counts.samples;
    output.counts.tokens += last - first;
    output.counts.trained_tokens += std::count(whole.trained.begin() + std::min(first + 1, last), whole.trained.begin() + last, 1);
  }

  static void add_example(Counts& counts, std::string example) {
    if (counts.examples.size() < most_examples) counts.examples.push_back(std::move(example));
  }

  // Waits for its turn; false once something is wrong with an earlier chunk or this one.
  bool hand_over(const Chunk& chunk, const Output& output) {
    base::Lock lock(writing_);
    turn_.wait(lock, [&]() LOCKSTEP_REQUIRES(writing_) { return error_ || written_ == chunk.number; });
    if (error_) return false;
    try {
      if (output.error) std::rethrow_exception(output.error);
      std::size_t at = 0;
      for (const auto& [length, origin] : output.samples) {
        writer_.add(std::span(output.tokens).subspan(at, length), std::span(output.trained).subspan(at, length), origin);
        at += length;
      }
      add_counts(output.counts);
      if (job_.on_progress) job_.on_progress(chunk.progress);
    } catch (...) {
      error_ = std::current_exception();
      const base::Lock stop(scanning_);
      scanned_ = true;
    }
    ++written_;
    turn_.notify_all();
    return !error_;
  }

  void add_counts(const Counts& more) LOCKSTEP_REQUIRES(writing_) {
    counts_.records += more.records;
    counts_.samples += more.samples;
    counts_.tokens += more.tokens;
    counts_.trained_tokens += more.trained_tokens;
    counts_.cut += more.cut;
    counts_.cut_tokens += more.cut_tokens;
    counts_.in_pieces += more.in_pieces;
    counts_.too_long += more.too_long;
    counts_.untrained += more.untrained;
    counts_.bad += more.bad;
    for (const std::string& example : more.examples) add_example(counts_, example);
  }

  const Job& job_;
  CacheWriter& writer_;

  base::Mutex scanning_;
  Scanner scanner_ LOCKSTEP_GUARDED_BY(scanning_);
  bool scanned_ LOCKSTEP_GUARDED_BY(scanning_) = false;
  std::int64_t chunks_ LOCKSTEP_GUARDED_BY(scanning_) = 0;
  std::uint64_t records_ LOCKSTEP_GUARDED_BY(scanning_) = 0;

  base::Mutex writing_;  // taken before scanning_, where both are
  base::Condition turn_;
  std::int64_t written_ LOCKSTEP_GUARDED_BY(writing_) = 0;
  Counts counts_ LOCKSTEP_GUARDED_BY(writing_);
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(writing_);
};

}  // namespace

Counts tokenize(const Job& job, CacheWriter& writer) { return Tokenizing(job, writer).run(); }

}  // namespace lockstep::corpus
