// Lines of metrics.jsonl: written by rank 0, read by everything that shows a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::record {

struct StepLine {
  std::int64_t step = 0;
  double epoch = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  std::int64_t tokens = 0;  // trained so far
  double tokens_per_second = 0;
  double step_seconds = 0;
  double data_seconds = 0;
  double communication_seconds = 0;             // not hidden behind compute; 0 where the reduction is part of a CUDA graph
  std::vector<std::int64_t> memory_bytes = {};  // peak, per rank
  std::optional<double> mfu = {};               // none where the device's peak is unknown
  std::int64_t skipped_steps = 0;               // so far, for numbers that were not finite
  std::optional<double> loss_scale = {};        // f16 only
};

struct EvalLine {
  std::int64_t step = 0;
  double eval_loss = 0;
  double eval_perplexity = 0;  // e to the loss
  double eval_accuracy = 0;    // share of tokens that were the likeliest one
  std::int64_t eval_tokens = 0;
};

// One JSON object without a line end; "time" is now. Numbers that are not finite become null.
std::string to_json_line(const StepLine& line);
std::string to_json_line(const EvalLine& line);

// Appends whole lines, from any thread. A resumed run first drops what lies past its step, so a step appears once; a run that starts
// anew (step 0) drops all. Then comes {"event":"started","step":N}: readers know by it where this start's lines begin.
class MetricsWriter {
 public:
  MetricsWriter(const std::filesystem::path& path, std::int64_t resumed_at_step);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  void write(const StepLine& line);
  void write(const EvalLine& line);
  // Any other event, as one JSON object: samples, checkpoints, messages.
  void write_event(std::string_view json_object);

 private:
  std::filesystem::path path_;
  std::mutex mutex_;
  int file_ = -1;
};

}  // namespace lockstep::record
