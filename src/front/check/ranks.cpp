// Real ranks: collectives whose results are known, their speed beside what the link could give, and five steps of training.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "front/catalog/catalog.h"
#include "front/check/links.h"
#include "front/check/lists.h"
#include "front/job/errand.h"
#include "front/job/training.h"

namespace lockstep::check {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Kind = launch::Outcome::Kind;

constexpr const char* small_sizes = "4096,262144,4194304";
constexpr const char* large_sizes = "4096,1048576,67108864,268435456";

// A small model and random tokens, on the devices, ranks, threads and machines that were asked for; nothing else of the request.
config::Settings settings_for(const Context& context, config::DeviceKind kind) {
  config::Request request;
  const std::pair<const char*, const char*> values[] = {
      {"model.name", "check"},
      {"model.hidden_size", "256"},
      {"model.num_layers", "2"},
      {"model.num_heads", "4"},
      {"model.intermediate_size", "512"},
      {"model.vocab_size", "512"},
      {"model.max_seq_len", "128"},
      {"data.kind", "random"},
      {"data.random_tokens", "65536"},
      {"data.seq_len", "128"},
      {"trainer.max_steps", "5"},
      {"trainer.batch_size", "2"},
      {"trainer.log_interval", "1"},
      {"trainer.save_interval", "0"},
      {"monitor.sample_tokens", "0"},
      {"parallel.check_divergence", "1"},
  };
  for (const auto& [key, value] : values) request.assignments.push_back({key, value, "lockstep check"});
  config::Settings settings = config::load(request);
  const config::RunConfig& asked = context.settings.values;
  config::RunConfig& ours = settings.values;
  ours.name = "check";
  ours.trainer.target_device = kind;
  if (kind != config::DeviceKind::cpu) {
    ours.trainer.distributed.gpu_ids = asked.trainer.distributed.gpu_ids;
    ours.launch.num_gpus = asked.launch.num_gpus;
  }
  ours.trainer.distributed.enabled = asked.trainer.distributed.enabled;
  ours.parallel.ranks = asked.parallel.ranks;
  ours.parallel.threads = asked.parallel.threads;
  ours.parallel.nnodes = asked.parallel.nnodes;
  ours.parallel.node_rank = asked.parallel.node_rank;
  ours.parallel.master_addr = asked.parallel.master_addr;
  ours.parallel.master_port = asked.parallel.master_port;
  ours.parallel.timeout_s = asked.parallel.timeout_s;
  ours.launch.spawn = true;
  return settings;
}

// Why no ranks are started; empty: they are.
std::string why_not(const Context& context) {
  if (!context.mistake.empty()) return "not tried: the settings cannot be read, see above";
  return context.can_start ? "" : "not tried: worker or LibTorch cannot start, see above";
}

Finding failure_of(const launch::Outcome& outcome) {
  if (outcome.kind != Kind::failed) return failed("", "stopped before it was through", "let it run to its end");
  const catalog::Entry* entry = catalog::find(outcome.report.code);
  return failed(entry != nullptr ? entry->code : "", base::trim(outcome.report.text), entry != nullptr ? "" : "see the report above");
}

struct Measured {
  std::vector<Json> lines;
  launch::Outcome outcome;
  int ranks = 0;
};

Measured measure(Context& context, config::Settings settings, const char* sizes) {
  job::Setup setup = job::set_up(std::move(settings), context.environment);
  Measured measured;
  const job::ErrandListener listener{.result = [&](const std::string& line) { measured.lines.emplace_back(base::parse_json(line)); },
                                     .say = context.say,
                                     .met = context.met};
  measured.outcome = job::run_errand(
      setup, context.environment, {.verb = "bench-comm", .arguments = {"--json", "1", "--sizes", sizes}, .remark = context.results.dump()},
      listener, *context.stop);
  measured.ranks = setup.job.world_size;
  return measured;
}

// The largest all_reduce: what training waits for.
const Json* largest_all_reduce(const std::vector<Json>& lines) {
  const Json* largest = nullptr;
  for (const Json& line : lines) {
    if (line.at("operation") == "all_reduce" && (largest == nullptr || line.at("bytes") > largest->at("bytes"))) largest = &line;
  }
  return largest;
}

std::string speed_words(const Measured& measured) {
  const Json* largest = largest_all_reduce(measured.lines);
  if (largest == nullptr) return fmt::format("{} ranks", measured.ranks);
  return fmt::format("{} ranks, {} collectives right; all_reduce of {}: {:.1f} GB/s over the bus", measured.ranks, measured.lines.size(),
                     base::human_bytes(largest->at("bytes").get<std::uint64_t>()),
                     largest->at("bus_bytes_per_second").get<double>() * 1e-9);
}

// What the link should give, where it is known and every rank has a GPU of its own.
std::optional<LinkMatrix> link_of(const Context& context) {
  const launch::Nvml nvml;
  const std::vector<int> positions = visible_positions(nvml, context.machine);
  if (positions.size() < 2 || context.settings.values.parallel.nnodes > 1) return std::nullopt;
  return look_at_links(nvml, positions);
}

}  // namespace

Finding judge_speed(double bus_bytes_per_second, double link_bytes_per_second, bool nvlink, const std::string& words,
                    const std::string& by) {
  const double share = bus_bytes_per_second / link_bytes_per_second;
  const std::string all = fmt::format("{}, {:.0f} % of the {:.0f} GB/s of {}", words, 100 * share, link_bytes_per_second * 1e-9, by);
  // Measured with NCCL: some 80 % of NVLink; a third of PCIe where numbers go through the host.
  const double expected = nvlink ? 0.5 : 0.2;
  return share < expected ? warning("LS-315", all) : good(all);
}

Outcome check_gloo(Context& context) {
  if (const std::string why = why_not(context); !why.empty()) return {{not_here(why)}};
  if (context.settings.values.parallel.nnodes > 1 && context.on_gpus) return {{not_here("machines with GPUs meet by NCCL: see below")}};
  config::Settings settings = settings_for(context, config::DeviceKind::cpu);
  settings.values.trainer.distributed.backend = config::Backend::gloo;
  settings.values.trainer.distributed.enabled = true;
  if (settings.values.parallel.nnodes == 1) settings.values.parallel.ranks = std::max<std::int64_t>(2, settings.values.parallel.ranks);
  const Measured measured = measure(context, std::move(settings), small_sizes);
  if (measured.outcome.kind != Kind::complete) return {{failure_of(measured.outcome)}};
  return {{good(speed_words(measured))}, measured.lines};
}

Outcome check_nccl(Context& context) {
  if (!context.on_gpus) return {{not_here("no GPU: ranks on the CPU share memory, and talk by Gloo between machines")}};
  if (const std::string why = why_not(context); !why.empty()) return {{not_here(why)}};
  config::Settings settings = settings_for(context, config::DeviceKind::cuda);
  settings.values.trainer.distributed.backend = config::Backend::nccl;
  if (context.ranks < 2 && settings.values.parallel.nnodes == 1)
    return {{not_here("one rank has nobody to talk to; LOCKSTEP_OVERSUBSCRIBE=1 with --ranks 2 lets two share a GPU")}};
  const Measured measured = measure(context, std::move(settings), context.sizes_are_small ? small_sizes : large_sizes);
  if (measured.outcome.kind != Kind::complete) return {{failure_of(measured.outcome)}};
  const Json* largest = largest_all_reduce(measured.lines);
  const std::optional<LinkMatrix> link = link_of(context);
  if (largest == nullptr || !link || !link->bytes_per_second || context.sizes_are_small)
    return {{good(speed_words(measured))}, measured.lines};
  return {{judge_speed(largest->at("bus_bytes_per_second").get<double>(), *link->bytes_per_second, link->nvlink, speed_words(measured),
                       link->by)},
          measured.lines};
}

Outcome check_training(Context& context) {
  if (const std::string why = why_not(context); !why.empty()) return {{not_here(why)}};
  config::Settings settings = settings_for(context, context.on_gpus ? config::DeviceKind::cuda : config::DeviceKind::cpu);
  if (context.on_gpus) settings.values.model.dtype = config::DType::bf16;
  // Machines of one run need one folder that all see; a machine alone leaves nothing behind.
  const bool alone = settings.values.parallel.nnodes == 1;
  const fs::path output = alone ? fs::temp_directory_path() / fmt::format("lockstep-check-run-{}", ::getpid())
                                : fs::path(context.settings.values.output) / "lockstep-check";
  settings.values.output = output.string();
  settings.values.name = fmt::format("check-{}", settings.values.parallel.master_port);
  std::optional<double> first_loss;
  job::Training training(std::move(settings), context.environment, {}, [&](const job::Event& event) {
    if (const auto* line = std::get_if<job::MetricsLine>(&event)) {
      const auto loss = line->json.find("loss");
      if (!first_loss && loss != line->json.end() && loss->is_number()) first_loss = loss->get<double>();
    }
    if (const auto* said = std::get_if<job::Note>(&event); said != nullptr && context.say) context.say(said->text);
  });
  training.prepare();
  const job::Ended ended = training.run();
  std::error_code error;
  if (ended.outcome.kind != Kind::complete) return {{failure_of(ended.outcome)}};
  if (alone || training.shows()) fs::remove_all(output, error);
  const int world = training.plan().world_size;
  const std::string losses = first_loss && ended.last_loss ? fmt::format(", loss {:.4f} to {:.4f}", *first_loss, *ended.last_loss) : "";
  return {{good(fmt::format("{} steps on {} {}{}{}", ended.last_step, world, world == 1 ? "rank" : "ranks", losses,
                            world > 1 ? ", weights equal on all of them after every step" : ""))},
          {{"ranks", world}, {"steps", ended.last_step}, {"seconds", ended.seconds}}};
}

}  // namespace lockstep::check
