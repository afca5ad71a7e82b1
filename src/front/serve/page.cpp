// Routes, and what stands behind each.
#include "front/serve/page.h"

#include <fmt/format.h>

#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash/fresh.h"
#include "base/json.h"
#include "base/text.h"
#include "front/launch/devices/devices.h"
#include "front/serve/answers.h"
#include "front/serve/assets.h"
#include "front/serve/children/end_process.h"
#include "journal/control.h"
#include "journal/lease.h"
#include "journal/run_folder.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

// What the star of a route stands for; nothing where the path is another.
std::optional<std::string> matched(std::string_view route, const std::string& path) {
  const std::vector<std::string> wanted = base::split(route, '/'), given = base::split(path, '/');
  if (wanted.size() != given.size()) return std::nullopt;
  std::string star;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == "*")
      star = given[i];
    else if (wanted[i] != given[i])
      return std::nullopt;
  }
  return star;
}

double number_asked(const http::Request& request, std::string_view name, double otherwise) {
  return base::parse_number(request.asked(name)).value_or(otherwise);
}

Json devices_json() {
  const launch::Machine machine = launch::look_at_machine(launch::process_environment());
  Json gpus = Json::array();
  for (std::size_t i = 0; i < machine.visible.size(); ++i) {
    const launch::Gpu& gpu = machine.visible[i].gpu;
    gpus.push_back({{"id", i}, {"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}, {"free_bytes", gpu.free_bytes}});
  }
  return {{"gpus", gpus}, {"cores", machine.cores}, {"problem", machine.problem}};
}

}  // namespace

Page::Page(Options options)
    : options_(std::move(options)),
      guard_(options_.host, options_.token),
      folders_(options_.output, options_.folders),
      starts_(folders_),
      queue_(folders_, starts_),
      runs_(folders_, logs_, starts_, queue_),
      chats_(folders_),
      exports_(folders_),
      live_(folders_, runs_, starts_, queue_) {}

const std::vector<Page::Route>& Page::routes() {
  static const std::vector<Route> table = {
      // clang-format off
      {"GET", "/api/state", &Page::state},
      {"GET", "/api/settings", &Page::settings},
      {"POST", "/api/plan", &Page::plan},
      {"GET", "/api/runs", &Page::list_runs},
      {"POST", "/api/runs", &Page::start_run},
      {"GET", "/api/runs/*", &Page::show_run},
      {"DELETE", "/api/runs/*", &Page::delete_run},
      {"GET", "/api/runs/*/series", &Page::show_series},
      {"GET", "/api/runs/*/log", &Page::show_log},
      {"GET", "/api/runs/*/machines", &Page::show_machines},
      {"POST", "/api/runs/*/resume", &Page::resume_run},
      {"POST", "/api/runs/*/ask", &Page::ask_run},
      {"POST", "/api/runs/*/end", &Page::end_run},
      {"POST", "/api/runs/*/export", &Page::export_run},
      {"GET", "/api/stream", &Page::stream},
      {"POST", "/api/import", &Page::import_file},
      {"POST", "/api/data", &Page::inspect},
      {"POST", "/api/placements", &Page::placements},
      {"GET", "/api/paths", &Page::paths},
      {"GET", "/api/presets", &Page::presets},
      {"POST", "/api/presets/*", &Page::keep_preset},
      {"DELETE", "/api/presets/*", &Page::drop_preset},
      {"POST", "/api/check", &Page::check_machine},
      {"POST", "/api/explain", &Page::explain},
      {"POST", "/api/chat", &Page::open_chat},
      {"POST", "/api/chat/*/ask", &Page::ask_chat},
      {"POST", "/api/chat/*/stop", &Page::stop_chat},
      {"DELETE", "/api/chat/*", &Page::close_chat},
      // clang-format on
  };
  return table;
}

http::Response Page::answer(const http::Request& request) {
  if (auto stopped = guard_.stops(request)) return std::move(*stopped);
  if (request.path.starts_with("/api/")) return answer_api(request);
  if (request.method != "GET" && request.method != "HEAD") return http::plain_answer(405, "the page is only read");
  return asset(request);
}

http::Response Page::answer_api(const http::Request& request) {
  bool known = false;
  for (const Route& route : routes()) {
    const auto star = matched(route.path, request.path);
    if (!star) continue;
    known = true;
    if (route.method != request.method && !(route.method == "GET" && request.method == "HEAD")) continue;
    Json body = Json::object();
    if (!request.body.empty()) {
      auto read = base::json_if_any(request.body);
      if (!read || !read->is_object()) return http::plain_answer(400, "the body must be one JSON object");
      body = std::move(*read);
    }
    try {
      return (this->*route.run)({request, *star, body});
    } catch (const Json::exception&) {
      return http::plain_answer(400, "something in the body is of another kind than it should be");
    }
  }
  return known ? http::plain_answer(405, "this address knows other methods") : http::plain_answer(404, "there is nothing at this address");
}

// A folder, or a start that has not come to one.
void Page::expect_run(const std::string& name) {
  const auto waiting = queue_.names();
  if (!Folders::is_name(name) || !(starts_.of(name) || std::find(waiting.begin(), waiting.end(), name) != waiting.end()))
    folders_.run(name);
}

http::Response Page::state(const Call&) {
  Json folders = Json::array();
  for (const auto& folder : folders_.allowed()) folders.push_back(folder.string());
  const auto runs = runs_.list();
  std::string text = to_text({{"version", options_.version},
                              {"output", folders_.output().string()},
                              {"folders", folders},
                              {"devices", devices_json()},
                              {"mark", live_.mark(*runs)}});
  text.replace(text.size() - 1, 1, fmt::format(",\"runs\":{}}}", runs->text()));  // thousands of them, written once for all who ask
  return {.body = std::move(text)};
}

http::Response Page::settings(const Call&) { return json_answer(schema()); }

http::Response Page::plan(const Call& call) {
  const std::string resumed = call.body.value("resume", "");
  if (!resumed.empty()) folders_.run(resumed);
  return json_answer(draft(folders_, &counting_, {values_in(call.body), resumed, call.body.value("launcher", "lockstep")}).judged);
}

http::Response Page::list_runs(const Call&) { return {.body = runs_.list()->text()}; }

http::Response Page::show_run(const Call& call) {
  expect_run(call.name);
  Json details = runs_.details(call.name);
  details["exports"] = exports_.of(call.name);
  return json_answer(details);
}

http::Response Page::show_series(const Call& call) {
  expect_run(call.name);
  const auto log = logs_.of(folders_.output() / call.name);
  log->refresh();
  const double points = std::clamp(number_asked(call.request, "points", 800), 10.0, 4000.0);
  return json_answer(log->series(static_cast<std::size_t>(points), number_asked(call.request, "from", 0),
                                 number_asked(call.request, "to", std::numeric_limits<double>::max())));
}

http::Response Page::show_log(const Call& call) {
  expect_run(call.name);
  const double rank = std::clamp(number_asked(call.request, "rank", -1), -1.0, 1e6),
               lines = std::clamp(number_asked(call.request, "lines", 200), 1.0, 2000.0);
  return json_answer(runs_.log_lines(call.name, static_cast<int>(rank), static_cast<int>(lines)));
}

http::Response Page::show_machines(const Call& call) {
  expect_run(call.name);
  return json_answer(runs_.machines(call.name));
}

http::Response Page::start_run(const Call& call) {
  const Draft made = draft(folders_, nullptr, {.values = values_in(call.body), .launcher = call.body.value("launcher", "lockstep")});
  if (!made.good) return json_answer(made.judged, 422);
  if (!made.judged["starts_here"]) return http::plain_answer(409, made.judged["start_note"]);
  if (call.body.value("queue", false))
    queue_.add(made.name, made.arguments);
  else
    starts_.start(made.name, made.arguments);
  return json_answer({{"name", made.name}, {"command", made.judged["commands"][0]["command"]}}, 202);
}

http::Response Page::resume_run(const Call& call) {
  folders_.run(call.name);
  const Draft made = draft(folders_, nullptr, {.values = values_in(call.body), .resumed = call.name});
  if (!made.good) return json_answer(made.judged, 422);
  starts_.start(made.name, made.arguments);
  return json_answer({{"name", made.name}, {"command", made.judged["commands"][0]["command"]}}, 202);
}

// The answer comes to the page as a line of metrics.jsonl, with the id.
http::Response Page::ask_run(const Call& call) {
  const auto wish = journal::wish_named(call.body.value("wish", ""));
  if (!wish) throw base::usage_error("ui", "a run can be asked to stop, save, evaluate or sample.");
  expect_run(call.name);
  const journal::RunFolder folder{folders_.output() / call.name};
  const auto holder = journal::lease_holder(folder.root);
  if (!holder || holder->gone) {
    if (*wish == journal::Wish::stop && starts_.stop(call.name)) return json_answer({{"id", ""}, {"wish", "stop"}}, 202);
    return http::plain_answer(409, fmt::format("{} is not being trained: nobody could answer.", call.name));
  }
  const journal::Asked asked{base::fresh_id(2), *wish};
  try {
    if (!journal::leave_wishes(folder.control(), std::span(&asked, 1), holder->token))
      return http::plain_answer(409, "the run has not taken up what it was asked for last; try again in a moment.");
  } catch (const base::UserError&) {  // a full disk holds no wish, and must not keep a run from ending
    const bool stopped = *wish == journal::Wish::stop && holder->pid > 0 && ::kill(static_cast<pid_t>(holder->pid), SIGINT) == 0;
    if (!stopped) throw;
    return json_answer({{"id", ""}, {"wish", "stop"}}, 202);
  }
  return json_answer({{"id", asked.id}, {"wish", journal::name_of(*wish)}}, 202);
}

// For a run that hangs: it answers no wish any more.
http::Response Page::end_run(const Call& call) {
  expect_run(call.name);
  const auto holder = journal::lease_holder(folders_.output() / call.name);
  const auto start = starts_.of(call.name);
  const bool held = holder && !holder->gone;
  const auto pid = held ? holder->pid : start && start->lives ? start->pid : 0;
  if (held && pid == 0)
    return http::plain_answer(409, fmt::format("{} is trained by {}. It can only be ended there.", call.name, holder->name));
  if (pid == 0) return http::plain_answer(409, fmt::format("{} is not being trained: there is nothing to end.", call.name));
  return slowly([&] {
    if (end_process(static_cast<pid_t>(pid))) return json_answer({{"ended", call.name}});
    return http::plain_answer(409, fmt::format("process {} cannot be ended from here: it belongs to another user, or the kernel holds it. "
                                               "Try `kill -9 {}` as whoever started it.",
                                               pid, pid));
  });
}

http::Response Page::export_run(const Call& call) {
  const std::string wanted = call.body.value("checkpoint", "");
  folders_.run(call.name);
  const Json details = runs_.details(call.name);
  for (const Json& one : details["checkpoints"]) {
    if (one["name"] != wanted) continue;
    const auto folder = exports_.begin(call.name, one["path"].get<std::string>(), call.body.value("merge", false));
    return json_answer({{"path", folder.string()}}, 202);
  }
  throw base::usage_error("ui", "{} has no checkpoint {}.", call.name, wanted.substr(0, 120));
}

http::Response Page::delete_run(const Call& call) {
  expect_run(call.name);
  if (exports_.works_for(call.name)) return http::plain_answer(409, fmt::format("{} is being exported. Let that end first.", call.name));
  runs_.remove(call.name);
  return json_answer({{"deleted", call.name}});
}

http::Response Page::stream(const Call& call) {
  const std::string run = call.request.asked("run");
  if (!run.empty()) expect_run(run);
  return {.type = "text/event-stream", .headers = {{"X-Accel-Buffering", "no"}}, .stream = live_.listen(run, call.request.asked("known"))};
}

}  // namespace lockstep::serve
