// Lines as they come; a resumed start's file begins with lines that were told before.
#include "front/job/follower.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace lockstep::job {

Follower::Follower(const std::filesystem::path& metrics) : tail_(metrics) { tail_.skip_to_end(); }

void Follower::poll(const OnLine& on_line) {
  const auto update = tail_.poll();
  auto first = update.lines.begin();
  for (auto line = update.lines.begin(); line != update.lines.end(); ++line) {
    if (line->starts_with(R"({"event":"started")")) first = line;
  }
  for (auto line = first; line != update.lines.end(); ++line) {
    const nlohmann::json json = base::json_if_any(*line).value_or(nullptr);
    if (!json.is_object()) continue;
    remember(json);
    on_line(*line, json);
  }
}

void Follower::remember(const nlohmann::json& json) {
  if (const auto loss = json.find("loss"); loss != json.end()) {
    const auto step = json.find("step");
    last_step_ = step != json.end() && step->is_number() ? step->get<std::int64_t>() : 0;
    if (loss->is_number()) last_loss_ = loss->get<double>();
  }
  const auto event = json.find("event");
  if (event == json.end() || !event->is_string()) return;
  if (*event == "started") started_ = true;
  if (*event == "finished") was_stopped_ = json.contains("reason") && json["reason"] == "stopped";
}

}  // namespace lockstep::job
