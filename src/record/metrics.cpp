// Writes metrics.jsonl, one write call a line.
#include "record/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"

namespace lockstep::record {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// The lines of an earlier start that a run resumed at `step` builds on.
std::string lines_up_to(std::string_view text, std::int64_t step) {
  if (step == 0) return {};
  std::size_t kept = 0;
  while (kept < text.size()) {
    const std::size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;  // cut off by a crash
    const Json line = Json::parse(text.substr(kept, end - kept), nullptr, false);
    if (line.is_discarded() || (line.is_object() && line.value("step", std::int64_t{0}) > step)) break;
    kept = end + 1;
  }
  return std::string(text.substr(0, kept));
}

}  // namespace

std::string to_json_line(const StepLine& line) {
  Json json;
  json["step"] = line.step;
  json["epoch"] = line.epoch;
  json["loss"] = line.loss;
  json["grad_norm"] = line.grad_norm;
  json["learning_rate"] = line.learning_rate;
  json["tokens"] = line.tokens;
  json["tokens_per_second"] = line.tokens_per_second;
  json["step_seconds"] = line.step_seconds;
  json["data_seconds"] = line.data_seconds;
  json["communication_seconds"] = line.communication_seconds;
  json["memory_bytes"] = line.memory_bytes;
  json["mfu"] = or_null(line.mfu);
  json["skipped_steps"] = line.skipped_steps;
  if (line.loss_scale) json["loss_scale"] = *line.loss_scale;
  json["time"] = base::utc_time();
  return json.dump();
}

std::string to_json_line(const EvalLine& line) {
  Json json;
  json["step"] = line.step;
  json["eval_loss"] = line.eval_loss;
  json["eval_perplexity"] = line.eval_perplexity;
  json["eval_accuracy"] = line.eval_accuracy;
  json["eval_tokens"] = line.eval_tokens;
  json["time"] = base::utc_time();
  return json.dump();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t resumed_at_step) : path_(path) {
  // Replaced, not truncated: a reader that follows the file sees by its identity that it must begin anew.
  const std::string kept = std::filesystem::exists(path) ? lines_up_to(base::read_text(path), resumed_at_step) : std::string();
  const Json started = {{"event", "started"}, {"step", resumed_at_step}, {"time", base::utc_time()}};
  base::write_text_atomically(base::real_files(), path, kept + started.dump() + "\n");
  file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) throw base::checkpoint_error("record", "cannot open {} to append: {}.", path.string(), std::strerror(errno));
}

MetricsWriter::~MetricsWriter() {
  if (file_ >= 0) ::close(file_);
}

void MetricsWriter::write(const StepLine& line) { write_event(to_json_line(line)); }
void MetricsWriter::write(const EvalLine& line) { write_event(to_json_line(line)); }

void MetricsWriter::write_event(std::string_view json_object) {
  std::string line(json_object);
  line += '\n';
  const std::scoped_lock lock(mutex_);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw base::checkpoint_error("record", "cannot write to {}: {}.", path_.string(), std::strerror(errno));
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace lockstep::record
