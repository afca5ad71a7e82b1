// One small JSON object.
#include "journal/ending.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"

namespace lockstep::journal {

namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path path_of(const RunFolder& folder) { return folder.root / "end.json"; }

}  // namespace

void write_ending(const RunFolder& folder, const Ending& ending) {
  Json json = {{"status", ending.status}, {"exit_code", ending.exit_code}};
  if (ending.rank) json["rank"] = *ending.rank;
  if (!ending.error.empty()) json["error"] = ending.error;
  if (!ending.report.empty()) json["report"] = ending.report;
  json["resume"] = ending.resume;
  json["seconds"] = ending.seconds;
  json["last_step"] = ending.last_step;
  json["time"] = ending.time.empty() ? base::utc_time() : ending.time;
  base::write_text_atomically(base::real_files(), path_of(folder), json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void remove_ending(const RunFolder& folder) {
  std::error_code error;
  std::filesystem::remove(path_of(folder), error);
}

std::optional<Ending> read_ending(const RunFolder& folder) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_of(folder), error)) return std::nullopt;
  try {
    const auto json = base::json_if_any(base::read_text(path_of(folder)));
    if (!json || !json->is_object()) return std::nullopt;
    Ending ending{.status = json->value("status", ""),
                  .exit_code = json->value("exit_code", 0),
                  .error = json->value("error", ""),
                  .report = json->value("report", ""),
                  .resume = json->value("resume", ""),
                  .seconds = json->value("seconds", 0.0),
                  .last_step = json->value("last_step", std::int64_t{0}),
                  .time = json->value("time", "")};
    if (json->contains("rank")) ending.rank = json->value("rank", 0);
    return ending;
  } catch (const std::exception&) {  // values of other kinds, or the file went away
    return std::nullopt;
  }
}

}  // namespace lockstep::journal
