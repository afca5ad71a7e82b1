// `lockstep runs`: lists runs, compares them, plots their curves, all from their folders.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/last_name.h"
#include "base/file/size_on_disk.h"
#include "base/files.h"
#include "base/text.h"
#include "config/run_config.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/job/ask.h"
#include "front/runs/compare.h"
#include "front/runs/plot.h"
#include "front/show/table.h"
#include "front/show/terminal.h"
#include "front/show/watch_screen.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using runs::RunView;

constexpr const char* runs_help = R"(lockstep runs [list | compare | plot]

  lockstep runs                       every run under runs/, the newest first
  lockstep runs compare RUN RUN ...   how far each came, and the settings that differ
  lockstep runs plot RUN ...          curves as a picture, SVG or PNG

  lockstep runs list --help           the flags of each
)";

constexpr std::size_t sparkline_columns = 16;

struct RunsRequest {
  std::vector<std::string> names;
  std::string output = config::RunConfig().output;
  bool json = false;
};

void describe(CLI::App& app, RunsRequest& request) {
  app.add_option("--output", request.output, "where runs lie")->capture_default_str();
  app.add_flag("--json", request.json, "one JSON object");
}

std::vector<fs::path> folders_of(const RunsRequest& request) {
  std::vector<fs::path> folders;
  for (const std::string& name : request.names) folders.push_back(job::find_run(name, request.output));
  return folders;
}

std::string loss_text(const std::optional<double>& loss) { return loss ? fmt::format("{:.4f}", *loss) : "-"; }
std::string steps_text(const RunView& view) {
  return fmt::format("{}/{}", view.step, view.total_steps > 0 ? std::to_string(view.total_steps) : "?");
}
std::string rate_text(const RunView& view) {
  return view.per_second > 0 ? fmt::format("{} {}/s", base::human_count(view.per_second), view.counted == "tokens" ? "tok" : view.counted)
                             : "-";
}

Json to_json(const RunView& view, std::uint64_t bytes) {
  const auto or_null = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"name", view.name},
          {"folder", view.folder.string()},
          {"state", runs::name_of(view.state)},
          {"error", view.trouble},
          {"step", view.step},
          {"total_steps", view.total_steps},
          {"loss", or_null(view.loss)},
          {"eval_loss", or_null(view.eval_loss)},
          {"best_eval_loss", or_null(view.best_eval_loss)},
          {view.counted + "_per_second", view.per_second},
          {"step_seconds", view.step_seconds},
          {"mfu", or_null(view.mfu)},
          {"started", view.started},
          {"seconds", view.seconds},
          {"remaining_seconds", view.remaining_seconds()},
          {"bytes", bytes}};
}

int list(std::span<const std::string> args) {
  RunsRequest request;
  CLI::App app{"Every run under --output, the newest first, or those named.", "lockstep runs list"};
  app.add_option("RUN", request.names, "runs, by folder or by name under --output; none: all");
  describe(app, request);
  if (!read_flags(app, args, "runs list")) return 0;
  const auto folders = request.names.empty() ? runs::find_runs(request.output) : folders_of(request);
  if (request.json) {
    Json all = Json::array();
    for (const fs::path& folder : folders) all.push_back(to_json(runs::read_run(folder), base::size_on_disk(folder)));
    std::puts(Json{{"runs", all}}.dump(1).c_str());
    return 0;
  }
  if (folders.empty()) {
    fmt::print("there is no run under {}. Start one with `lockstep train`, or say where runs lie with --output.\n", request.output);
    return 0;
  }
  const bool utf8 = show::shows_utf8();
  show::Table table({"run", "state", "step", "loss", "evaluation", "", "speed", "lasted", "on disk", "started"});
  for (const fs::path& folder : folders) {
    const RunView view = runs::read_run(folder);
    table.row({view.name, std::string(runs::name_of(view.state)), steps_text(view), loss_text(view.loss), loss_text(view.best_eval_loss),
               show::sparkline(runs::outline(view.losses, sparkline_columns), utf8), rate_text(view), base::human_duration(view.seconds),
               base::human_bytes(base::size_on_disk(folder)), view.started});
  }
  constexpr std::size_t evaluation = 4, curve = 5, speed = 6, lasted = 7, on_disk = 8, began = 9;
  std::fputs(table.text(show::terminal_columns(), {began, on_disk, curve, evaluation, lasted, speed}).c_str(), stdout);
  return 0;
}

int compare(std::span<const std::string> args) {
  RunsRequest request;
  CLI::App app{"How far runs came, side by side, and the settings that differ between them.", "lockstep runs compare"};
  app.add_option("RUN", request.names, "two or more runs, by folder or by name under --output")->required();
  describe(app, request);
  if (!read_flags(app, args, "runs compare")) return 0;
  if (request.names.size() < 2) throw base::usage_error("runs", "compare needs two runs or more, and was given {}.", request.names.size());
  const std::vector<fs::path> folders = folders_of(request);
  std::vector<RunView> views;
  for (const fs::path& folder : folders) views.push_back(runs::read_run(folder));
  const auto differences = runs::differing_settings(folders);
  if (request.json) {
    Json settings = Json::object(), all = Json::array();
    for (const RunView& view : views) all.push_back(to_json(view, base::size_on_disk(view.folder)));
    for (const auto& one : differences) {
      for (const auto& value : one.values) settings[one.key].push_back(value ? Json(*value) : Json(nullptr));
    }
    std::puts(Json{{"runs", all}, {"settings", settings}}.dump(1).c_str());
    return 0;
  }
  std::vector<std::string> names = {""};
  for (const RunView& view : views) names.push_back(view.name);
  show::Table table(names);
  const auto row = [&](const std::string& name, const auto& text) {
    std::vector<std::string> cells = {name};
    for (const RunView& view : views) cells.push_back(text(view));
    table.row(cells);
  };
  row("state", [](const RunView& view) { return std::string(runs::name_of(view.state)); });
  row("step", steps_text);
  row("loss", [](const RunView& view) { return loss_text(view.loss); });
  row("best evaluation", [](const RunView& view) { return loss_text(view.best_eval_loss); });
  row("speed", rate_text);
  row("lasted", [](const RunView& view) { return base::human_duration(view.seconds); });
  for (const auto& one : differences) {
    std::vector<std::string> cells = {one.key};
    for (const auto& value : one.values) cells.push_back(value ? *value : "-");
    table.row(cells);
  }
  std::fputs(table.text().c_str(), stdout);
  if (differences.empty()) std::puts("no setting differs");
  return 0;
}

struct PlotRequest : RunsRequest {
  std::string metric = "loss", file = "plot.svg";
  runs::Axis axis = runs::Axis::step;
  double smoothing = 0;
  bool log_y = false;
};

void describe_plot(CLI::App& app, PlotRequest& request) {
  static const std::map<std::string, runs::Axis> axes = {
      {"step", runs::Axis::step}, {"tokens", runs::Axis::trained}, {"hours", runs::Axis::hours}};
  app.add_option("RUN", request.names, "runs, by folder or by name under --output")->required();
  app.add_option("--metric", request.metric,
                 "a number of metrics.jsonl: loss, eval_loss, grad_norm, tokens_per_second, rank_seconds.data, ...")
      ->capture_default_str();
  app.add_option("--over", request.axis, "step, tokens or hours")
      ->transform(CLI::CheckedTransformer(axes).description(""))
      ->type_name("WORD")
      ->default_str("step");
  app.add_option("--smooth", request.smoothing, "weight of the past in an exponential average")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.9999));
  app.add_flag("--log", request.log_y, "a logarithmic scale");
  app.add_option("-o,--file", request.file, "the picture, NAME.svg or NAME.png")->capture_default_str();
  app.add_option("--output", request.output, "where runs lie")->capture_default_str();
}

int plot(std::span<const std::string> args) {
  PlotRequest request;
  CLI::App app{"Curves of runs as a picture: SVG, which every browser opens, or PNG.", "lockstep runs plot"};
  describe_plot(app, request);
  if (!read_flags(app, args, "runs plot")) return 0;
  const std::string ending = base::lower(fs::path(request.file).extension().string());
  if (ending != ".svg" && ending != ".png") throw base::usage_error("runs", "--file {}: a picture is NAME.svg or NAME.png.", request.file);
  const bool over_steps = request.axis == runs::Axis::step, over_tokens = request.axis == runs::Axis::trained;
  runs::Plot picture{.title = fmt::format("{} over {}", request.metric,
                                          over_steps    ? "steps"
                                          : over_tokens ? "tokens"
                                                        : "hours"),
                     .x_name = over_steps    ? "step"
                               : over_tokens ? "tokens"
                                             : "hours",
                     .y_name = request.metric,
                     .curves = {},
                     .smoothing = request.smoothing,
                     .log_y = request.log_y};
  std::size_t points = 0;
  for (const fs::path& folder : folders_of(request)) {
    runs::Curve& curve = picture.curves.emplace_back(runs::read_curve(folder, request.metric, request.axis));
    curve.name = base::last_name(folder);
    points += curve.points.size();
    if (!curve.points.empty()) continue;
    const auto names = runs::metric_names(folder);
    const auto near = base::nearest(request.metric, names);
    throw base::usage_error("runs", "{} has no number called {}.{} It has {}.", folder.string(), request.metric,
                            near ? fmt::format(" Did you mean {}?", *near) : "", names.empty() ? "none yet" : base::join(names, ", "));
  }
  const runs::Drawing drawing = runs::draw(picture);
  base::write_text_atomically(base::real_files(), request.file, ending == ".png" ? runs::png_of(drawing) : runs::svg_of(drawing));
  fmt::print("{}: {} of {} run{}, {} points\n", request.file, request.metric, picture.curves.size(), picture.curves.size() == 1 ? "" : "s",
             points);
  return 0;
}

}  // namespace

int run_runs_verb(std::span<const std::string> args) {
  const std::string word = args.empty() ? "list" : args[0];
  if (word == "--help" || word == "-h") {
    std::fputs(runs_help, stdout);
    return 0;
  }
  if (word.starts_with("-")) return list(args);
  const auto rest = args.subspan(args.empty() ? 0 : 1);
  if (word == "list") return list(rest);
  if (word == "compare") return compare(rest);
  if (word == "plot") return plot(rest);
  throw base::usage_error("runs", "'{}' is none of list, compare and plot. `lockstep runs --help` says what they do.", word);
}

}  // namespace lockstep::app
