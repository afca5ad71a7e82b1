// Lines of metrics.jsonl: written by rank 0, read by everything that shows a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/file/patient_writer.h"
#include "journal/parts.h"

namespace lockstep::journal {

// What a rank's collectives of one kind came to, per step.
struct CollectiveLine {
  std::string kind;  // "all_reduce"
  double calls = 0;
  double bytes = 0;                    // of the tensors
  std::optional<double> seconds = {};  // from begin to end, hidden or not; none where nothing measures them
};

struct StepLine {
  std::int64_t step = 0;
  double epoch = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  std::string counted = "tokens";  // what the task counts: "tokens" and "tokens_per_second" are named so
  std::int64_t trained = 0;        // of them, so far
  double trained_per_second = 0;
  double step_seconds = 0;
  double data_seconds = 0;
  double communication_seconds = 0;            // not hidden behind compute; 0 where the reduction is part of a CUDA graph
  std::vector<PartSeconds> rank_seconds = {};  // of a step, per rank; empty where nobody took them
  std::vector<CollectiveLine> collectives = {};
  std::vector<std::int64_t> memory_bytes = {};  // peak, per rank
  std::optional<double> mfu = {};               // none where the device's peak is unknown
  std::int64_t skipped_steps = 0;               // so far, for numbers that were not finite
  std::optional<double> loss_scale = {};        // f16 only
};

// What a task measures beside the loss, under its own name.
struct Measure {
  std::string name;  // "accuracy"
  double value = 0;
};

// Every name has "eval_" before it in the file.
struct EvalLine {
  std::int64_t step = 0;
  double loss = 0;
  std::vector<Measure> measures = {};
  std::string counted = "tokens";
  std::int64_t trained = 0;  // how many the loss is of
};

// One JSON object without a line end; "time" is now. Numbers that are not finite become null.
std::string to_json_line(const StepLine& line);
std::string to_json_line(const EvalLine& line);

// Appends whole lines, from any thread. A resumed run first drops what lies past its step, so a step appears once; a run that starts
// anew (step 0) drops all. Then comes {"event":"started","step":N}: readers know by it where this start's lines begin.
// A disk that refuses lines never ends the run: up to 16 MiB of them wait in memory (some 40,000 steps; beyond that the oldest go) and are
// written in order when there is room. What is there at the very start must be writable, if not full.
class MetricsWriter {
 public:
  struct Options {
    std::int64_t resumed_at_step = 0;
    std::filesystem::path history = {};              // whose lines up to that step the file begins with; empty: its own
    std::function<void(std::string_view)> say = {};  // hears that lines begin to wait; that it is over is a line
    base::FileSystem* files = nullptr;               // null: the real ones
    base::PatientWriter::Options patience = {};
  };
  MetricsWriter(std::filesystem::path path, Options options);
  MetricsWriter(std::filesystem::path path, std::int64_t resumed_at_step)
      : MetricsWriter(std::move(path), Options{.resumed_at_step = resumed_at_step}) {}
  void write(const StepLine& line);
  void write(const EvalLine& line);
  // Any other event, as one JSON object: samples, checkpoints, messages.
  void write_event(std::string_view json_object);
  // The last try before the end; how many lines are lost.
  std::int64_t finish();

 private:
  std::unique_ptr<base::FileAppender> begin_file();
  void tell(const base::PatientWriter::News& news);

  std::filesystem::path path_;
  Options options_;
  base::FileSystem& files_;
  base::PatientWriter lines_;
};

}  // namespace lockstep::journal
