// `lockstep bench`: measures a step, the kernels or the collectives, by workers that the launcher starts and watches.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "front/app/measure/bench_sizes.h"
#include "front/app/flags.h"
#include "front/app/measure/model_file.h"
#include "front/job/errand.h"
#include "front/app/verbs.h"
#include "front/plan/memory.h"
#include "front/plan/predict.h"
#include "front/show/plan_text.h"
#include "front/show/signals.h"
#include "layout/recompute.h"
#include "layout/tables.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

struct BenchWish {
  std::string model, dtype, recompute, device = "auto", backend = "auto", sizes = "1K..1G";
  std::optional<std::int64_t> seq, batch, accumulation, ranks;
  std::vector<std::string> settings;  // section.key=value
  std::optional<std::int64_t> lora_rank;
  int steps = 10, warm_up = 5, profile = 0;
  std::string profile_folder, timeline, link;
  std::optional<int> link_blocks;
  int machine = 8;
  bool json = false, lora = false, load_in_4bit = false, baseline = false;
};

void describe(CLI::App& app, BenchWish& wish) {
  app.require_subcommand(1);
  CLI::App* step = app.add_subcommand("step", "a run's training step from random weights, on random tokens or on data.path=FILE");
  CLI::App* kernels =
      app.add_subcommand("kernels", "each kernel and matrix product against this device's measured bandwidth or matmul rate");
  CLI::App* comm = app.add_subcommand("comm", "each collective from small to large sizes: time, algorithm and bus bandwidth");
  step->add_option("--model", wish.model, "a model's file, or the name of one in models/")->required();
  kernels->add_option("--model", wish.model, "whose shapes; qwen2.5-0.5b on a GPU, nano on a CPU if left out");
  for (CLI::App* one : {step, kernels}) {
    one->add_option("--seq", wish.seq, "tokens a sequence; the file's if left out")->check(CLI::PositiveNumber);
    one->add_option("--batch", wish.batch, "sequences a micro-batch; the file's if left out")->check(CLI::PositiveNumber);
    one->add_option("--dtype", wish.dtype, "f32, bf16 or f16; the file's if left out");
  }
  step->add_option("--accumulation", wish.accumulation, "micro-batches per step; 1 if left out")->check(CLI::PositiveNumber);
  step->add_option("--recompute", wish.recompute, "auto, none, norms, qkv or blocks: what backward recomputes; the file's if left out");
  step->add_flag("--lora", wish.lora, "train LoRA adapters on all matrices of blocks beside frozen weights");
  step->add_option("--lora-rank", wish.lora_rank, "their rank; 16 if left out")->check(CLI::PositiveNumber);
  step->add_flag("--load-in-4bit", wish.load_in_4bit, "hold the frozen weights as NF4");
  step->add_option("settings", wish.settings, "any setting of a run, as section.key=value");
  step->add_option("--steps", wish.steps, "steps to measure")->capture_default_str()->check(CLI::Range(1, 100000));
  step->add_option("--warm-up", wish.warm_up, "steps before them, left out")->capture_default_str()->check(CLI::Range(0, 100000));
  step->add_option("--profile", wish.profile, "steps to trace after them: where a step's time goes")->check(CLI::Range(1, 1000));
  step->add_option("--profile-folder", wish.profile_folder, "where the trace goes; a new folder for temporary files if left out");
  step->add_option(
      "--timeline", wish.timeline,
      "a file for one step's trace by the device's clock, CUDA graphs included: parts, blocks, and which collectives it waits for");
  step->add_option("--link", wish.link,
                   "with --ranks: the other ranks are modelled, behind nvlink8, pcie4x16, ib400, ethernet-100 or infinite; "
                   "nvlink8+ib400: within a machine and between machines");
  step->add_option("--ranks", wish.ranks, "with --link: how many ranks there would be")->check(CLI::Range(2, 1 << 12));
  step->add_option(
          "--link-blocks", wish.link_blocks,
          "blocks that a collective takes of a GPU meanwhile: NCCL's channels over that link if left out; 1: copy engines move the bytes")
      ->check(CLI::Range(1, 128));
  step->add_flag("--baseline", wish.baseline,
                 "with --link: first the same step over links that take no time, what a plan makes of it, and the ratio of the two");
  step->add_option("--machine", wish.machine, "with --link: ranks of a machine")->capture_default_str()->check(CLI::Range(1, 1 << 12));
  comm->add_option("--ranks", wish.ranks, "ranks; one a GPU, or two on a CPU, if left out")->check(CLI::Range(2, 1 << 12));
  comm->add_option("--sync-backend", wish.backend, "auto, nccl, gloo or cpu")->capture_default_str();
  comm->add_option("--sizes", wish.sizes, "bytes, 1K..1G in steps of 4, or a list such as 64K,1M")->capture_default_str();
  for (CLI::App* one : {step, kernels, comm}) {
    one->add_option("--device", wish.device, "auto, cpu or cuda")->capture_default_str();
    one->add_flag("--json", wish.json, "one line of JSON a result");
  }
}

bool has_gpu(const BenchWish& wish, const launch::Environment& environment) {
  return wish.device != "cpu" && !launch::look_at_machine(environment).visible.empty();
}

config::Settings settings_of(const BenchWish& wish, const std::string& what, const launch::Environment& environment) {
  config::Request request{.environment = config::process_environment()};
  std::string model = wish.model;
  if (what == "kernels" && model.empty()) model = has_gpu(wish, environment) ? "qwen2.5-0.5b" : "nano";
  if (!model.empty()) request.file = find_model(model, "bench");
  const auto set = [&](const char* key, const std::string& value, const char* flag) { request.assignments.push_back({key, value, flag}); };
  set("trainer.target_device", wish.device, "--device");
  set("trainer.distributed.backend", wish.backend, "--sync-backend");
  if (!wish.dtype.empty()) set("model.dtype", wish.dtype, "--dtype");
  if (!wish.recompute.empty()) set("trainer.recompute", wish.recompute, "--recompute");
  if (wish.lora || wish.lora_rank) set("lora.enabled", "true", "--lora");
  if (wish.lora_rank) set("lora.rank", std::to_string(*wish.lora_rank), "--lora-rank");
  if (wish.load_in_4bit) set("model.load_in_4bit", "true", "--load-in-4bit");
  for (const std::string& setting : wish.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == setting.npos || setting.find('.') > equals)
      throw base::usage_error("bench", "{} is neither a flag nor section.key=value. `lockstep bench step --help` lists the flags.",
                              setting);
    request.assignments.push_back({setting.substr(0, equals), setting.substr(equals + 1), setting});
  }
  if (wish.ranks && what == "comm") set("parallel.ranks", std::to_string(*wish.ranks), "--ranks");
  config::Settings settings = config::load(request);

  config::RunConfig& values = settings.values;
  values.name = "bench-" + what;
  values.launch.spawn = true;
  values.checkpoint.resume.clear();
  if (what != "comm") values.parallel.ranks = 1;
  if (wish.seq) values.data.seq_len = *wish.seq;
  values.model.max_seq_len = std::max(values.model.max_seq_len, values.data.seq_len);
  if (wish.batch) values.trainer.batch_size = *wish.batch;
  if (values.trainer.batch_size == 0) values.trainer.batch_size = config::plan_batch(values, 1).batch_size;
  values.trainer.gradient_accumulation = wish.accumulation.value_or(1);
  values.trainer.global_batch_size = 0;
  return settings;
}

// Names here are those of a plan, with what the help calls them; no other link can be described.
plan::Link link_of(const std::string& name) {
  std::vector<std::string> names = {"nvlink8", "pcie4x16", "infinite"};
  for (const plan::Link& link : plan::known_links()) names.push_back(link.name);
  if (std::find(names.begin(), names.end(), name) != names.end()) return plan::link_named(name);
  const auto near = base::nearest(name, names);
  throw base::usage_error("bench", "--link {} is not one of {}.{}", name, base::join(names, ", "),
                          near ? fmt::format(" Did you mean {}?", *near) : "");
}

// As the worker reads it (rank/bench/link.h).
std::string link_model(const BenchWish& wish) {
  int blocks = 1;
  const auto numbers = [&](const std::string& name) {
    if (name == "infinite") return std::string("0 0");
    const plan::Link link = link_of(name);
    blocks = std::max(blocks, link.blocks);
    return fmt::format("{:g} {:g}", link.bytes_per_second, link.latency_s);
  };
  const std::size_t plus = wish.link.find('+');
  const std::string within = wish.link.substr(0, plus), between = plus == wish.link.npos ? within : wish.link.substr(plus + 1);
  const std::string both = numbers(within) + " " + numbers(between);
  return fmt::format("{} {} {} {} {}", *wish.ranks, both, wish.machine, wish.link_blocks.value_or(blocks), wish.link);
}

std::vector<std::string> worker_arguments(const BenchWish& wish, const std::string& what, const std::string& id) {
  std::vector<std::string> arguments = {"--json", wish.json ? "1" : "0"};
  const auto add = [&](const char* name, const std::string& value) { arguments.insert(arguments.end(), {name, value}); };
  if (what == "step") {
    add("--steps", std::to_string(wish.steps));
    add("--warm-up", std::to_string(wish.warm_up));
    add("--profile", std::to_string(wish.profile));
    const fs::path folder =
        wish.profile_folder.empty() ? fs::temp_directory_path() / ("lockstep-profile-" + id) : fs::path(wish.profile_folder);
    add("--profile-folder", fs::absolute(folder).string());
    if (!wish.link.empty()) add("--link", link_model(wish));
    if (!wish.timeline.empty()) add("--timeline", fs::absolute(wish.timeline).string());
  }
  if (what == "comm") add("--sizes", fmt::format("{}", fmt::join(parse_sizes(wish.sizes), ",")));
  return arguments;
}

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// What one rank of so many moves and holds, before anything runs.
void print_plan(const BenchWish& wish, const config::RunConfig& config, const launch::Environment& environment) {
  const auto line = [](std::string_view name, const std::string& value) { print_line(fmt::format("  {:<14} {}", name, value)); };
  const int ranks = static_cast<int>(*wish.ranks);
  print_line(fmt::format("planned for each of {} ranks", ranks));
  const layout::Tables tables = layout::tables_of(config, config.trainer.gradient_accumulation, ranks);
  if (tables.traffic.gathers > 0) line("a step", show::in_one_line(tables.traffic));
  layout::MemoryWish asked{.ranks = ranks, .on_gpu = has_gpu(wish, environment)};
  if (asked.on_gpu) asked.device_bytes = launch::smallest_gpu_bytes(launch::look_at_machine(environment));
  const plan::MemoryPlan plan = plan::plan_memory(config, asked);
  line("memory", fmt::format("{}; activations: {}", plan::in_one_line(plan.memory), layout::describe(plan.memory.step.recompute)));
}

int run_workers(const BenchWish& wish, const std::string& what, config::Settings settings, std::vector<std::string> arguments,
                const std::function<void(const std::string&)>& result) {
  const launch::Environment environment = launch::process_environment();
  const std::int64_t groups = std::exchange(settings.values.parallel.replicate, wish.link.empty() ? settings.values.parallel.replicate : 1);
  job::Setup setup = job::set_up(std::move(settings), environment);
  setup.settings.values.parallel.replicate = groups;
  if (what == "comm" && setup.job.world_size == 1) {
    throw base::usage_error(
        "bench",
        "one rank has nobody to talk to. Give --ranks N; LOCKSTEP_OVERSUBSCRIBE=1 lets ranks share a GPU, --device cpu needs none.");
  }
  const launch::StopWish stop;
  const show::Signals signals([&](int signal) { stop.ask(signal); });
  const job::ErrandListener listener{.result = result, .say = [](std::string_view line) { fmt::print(stderr, "{}\n", line); }};
  const auto all = worker_arguments(wish, what, setup.job.id);
  arguments.insert(arguments.begin(), all.begin(), all.end());
  const launch::Outcome outcome = job::run_errand(setup, environment, {.verb = "bench-" + what, .arguments = arguments}, listener, stop);
  if (outcome.kind == launch::Outcome::Kind::failed) {
    fmt::print(stderr, "{}", outcome.report.text);
    return outcome.report.exit_code;
  }
  return outcome.kind == launch::Outcome::Kind::complete ? 0 : 128 + (outcome.signal != 0 ? outcome.signal : SIGINT);
}

// The same step over links that take no time, and what a plan makes of it: arguments for the worker that measures it over the link.
int measure_baseline(BenchWish wish, const config::Settings& settings, std::vector<std::string>& arguments) {
  const plan::Links links = plan::links_named(wish.link, wish.machine);
  const bool json = std::exchange(wish.json, true);
  wish.link = "infinite";
  wish.timeline.clear();
  wish.profile = 0;
  plan::MeasuredRun baseline;
  const int code = run_workers(wish, "step", settings, {}, [&](const std::string& line) {
    baseline = plan::read_measured(line, "the baseline");
    if (json) print_line(line);
  });
  if (code != 0) return code;
  plan::Measured measured = plan::measured_of(settings.values);
  measured.step_seconds = baseline.step_seconds;
  measured.update_seconds = baseline.update_seconds;
  measured.accumulation = settings.values.trainer.gradient_accumulation;
  const plan::Prediction planned = plan::predict_for(settings.values, measured, links, static_cast<int>(*wish.ranks));
  if (!json)
    print_line(
        fmt::format("  {:<14} {:.2f} ms a step where links take no time, so {:.2f} ms ({:.1f} %): {:.2f} ms of communication, {:.2f} "
                    "ms of it exposed",
                    "time", measured.step_seconds * 1e3, planned.step_s * 1e3, 100 * measured.step_seconds / planned.step_s,
                    planned.communication_s * 1e3, planned.exposed_s * 1e3));
  arguments = {"--baseline", fmt::format("{}", measured.step_seconds), "--planned", fmt::format("{}", planned.step_s)};
  return 0;
}

int measure(const BenchWish& wish, const std::string& what) {
  const launch::Environment environment = launch::process_environment();
  const config::Settings settings = settings_of(wish, what, environment);
  std::vector<std::string> arguments;
  if (!wish.link.empty()) {
    layout::mesh_of(settings.values, static_cast<int>(*wish.ranks));  // one process stands for one of so many: groups are of all of them
    if (!wish.json) print_plan(wish, settings.values, environment);
    if (wish.baseline)
      if (const int code = measure_baseline(wish, settings, arguments); code != 0) return code;
  }
  return run_workers(wish, what, settings, arguments, print_line);
}

}  // namespace

int run_bench_verb(std::span<const std::string> args) {
  BenchWish wish;
  CLI::App app{"Measures how fast this machine trains. Warm-up is left out and the device is waited for around every measurement.",
               "lockstep bench"};
  describe(app, wish);
  if (!read_flags(app, args, "bench")) return 0;
  const std::string what = app.get_subcommands().front()->get_name();
  if (what == "comm") parse_sizes(wish.sizes);  // refuse before anything starts
  if (what == "step" && wish.link.empty() != !wish.ranks)
    throw base::usage_error("bench", "--ranks and --link go together: one process stands for one rank of many, behind a modelled link.");
  if (!wish.link.empty()) link_model(wish);
  if (wish.baseline && (wish.link.empty() || wish.link.find("infinite") != wish.link.npos))
    throw base::usage_error("bench", "--baseline is what a link is set beside. Give one: --link nvlink8 --ranks 8.");
  return measure(wish, what);
}

}  // namespace lockstep::app
