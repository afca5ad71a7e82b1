// Writes metrics.jsonl, one write call a line while the disk takes them.
#include "journal/metrics.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace lockstep::journal {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json by_part(const std::vector<PartSeconds>& ranks) {
  Json json = Json::object();
  for (const Part part : all_parts) {
    Json& list = json[std::string(name_of(part))] = Json::array();
    for (const PartSeconds& rank : ranks) list.push_back(of(rank, part));
  }
  return json;
}

// The lines of an earlier start that a run resumed at `step` builds on.
std::string lines_up_to(std::string_view text, std::int64_t step) {
  if (step == 0) return {};
  std::size_t kept = 0;
  while (kept < text.size()) {
    const std::size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;  // cut off by a crash
    const std::optional<Json> line = base::json_if_any(text.substr(kept, end - kept));
    if (!line || (line->is_object() && line->contains("step") && (*line)["step"].is_number() && (*line)["step"] > step)) break;
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
  json[line.counted] = line.trained;
  json[line.counted + "_per_second"] = line.trained_per_second;
  json["step_seconds"] = line.step_seconds;
  json["data_seconds"] = line.data_seconds;
  json["communication_seconds"] = line.communication_seconds;
  if (!line.rank_seconds.empty()) json["rank_seconds"] = by_part(line.rank_seconds);
  if (const auto found = find_straggler(line.rank_seconds))
    json["straggler"] = {{"rank", found->rank}, {"part", name_of(found->part)}, {"seconds", found->seconds}, {"share", found->share}};
  for (const CollectiveLine& one : line.collectives)
    json["collectives"][one.kind] = {{"calls", one.calls}, {"bytes", one.bytes}, {"seconds", or_null(one.seconds)}};
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
  json["eval_loss"] = line.loss;
  for (const Measure& measure : line.measures) json["eval_" + measure.name] = measure.value;
  json["eval_" + line.counted] = line.trained;
  json["time"] = base::utc_time();
  return json.dump();
}

MetricsWriter::MetricsWriter(std::filesystem::path path, Options options)
    : path_(std::move(path)),
      options_(std::move(options)),
      files_(options_.files != nullptr ? *options_.files : base::real_files()),
      lines_([this] { return begin_file(); }, options_.patience) {
  const auto news = lines_.flush();
  if (!news.error.empty() && !base::tells_of_a_full_disk(news.error))
    throw base::checkpoint_error("journal", "cannot begin {}: {}", path_.string(), news.error);
  tell(news);
}

// Replaced, not truncated: a reader that follows the file sees by its identity that it must begin anew.
std::unique_ptr<base::FileAppender> MetricsWriter::begin_file() {
  const std::filesystem::path& history = options_.history.empty() ? path_ : options_.history;
  const std::string kept =
      std::filesystem::exists(history) ? lines_up_to(base::read_text(history), options_.resumed_at_step) : std::string();
  const Json started = {{"event", "started"}, {"step", options_.resumed_at_step}, {"time", base::utc_time()}};
  base::write_text_atomically(files_, path_, kept + started.dump() + "\n");
  return files_.open_to_append(path_);
}

void MetricsWriter::tell(const base::PatientWriter::News& news) {
  using Kind = base::PatientWriter::News::Kind;
  if (news.kind == Kind::none) return;
  const std::string text =
      news.kind == Kind::began_to_wait
          ? fmt::format("{} cannot be written ({}). Training goes on; up to {} MiB of its lines wait in memory until there is room.",
                        path_.string(), news.error, options_.patience.capacity_bytes >> 20)
          : fmt::format("{} is written again: {} lines had waited in memory{}.", path_.string(), news.waited,
                        news.dropped > 0 ? fmt::format(", {} older ones are lost", news.dropped) : "");
  base::log_warning("{}", text);
  if (options_.say && news.kind == Kind::began_to_wait) options_.say(text);
  if (news.kind == Kind::caught_up) write_event(Json{{"event", "note"}, {"text", text}}.dump());
}

std::int64_t MetricsWriter::finish() {
  tell(lines_.flush());
  return lines_.waiting();
}

void MetricsWriter::write(const StepLine& line) { write_event(to_json_line(line)); }
void MetricsWriter::write(const EvalLine& line) { write_event(to_json_line(line)); }

void MetricsWriter::write_event(std::string_view json_object) { tell(lines_.write(std::string(json_object) + "\n")); }

}  // namespace lockstep::journal
