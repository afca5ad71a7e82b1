// Takes over what was seen, reads, judges, writes.
#include "front/monitor/monitor.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/quiet_thread.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::json;

constexpr double scalars_every_s = 10;

std::int64_t integer(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}

std::vector<journal::PartSeconds> rank_seconds(const Json& step) {
  std::vector<journal::PartSeconds> ranks;
  const auto parts = step.find("rank_seconds");
  if (parts == step.end() || !parts->is_object()) return ranks;
  for (const journal::Part part : journal::all_parts) {
    const auto list = parts->find(std::string(journal::name_of(part)));
    if (list == parts->end() || !list->is_array()) continue;
    ranks.resize(std::max(ranks.size(), list->size()));
    for (std::size_t rank = 0; rank < list->size(); ++rank)
      if ((*list)[rank].is_number()) ranks[rank][static_cast<std::size_t>(part)] = (*list)[rank].get<double>();
  }
  return ranks;
}

}  // namespace

Monitor::Monitor(Options options)
    : options_(std::move(options)), lines_(options_.folder.monitor() / ("machine-" + std::to_string(options_.facts.machine) + ".jsonl")) {
  if (options_.prometheus_port > 0) endpoint_ = std::make_unique<Endpoint>(options_.prometheus_port, [this] { return exposition(); });
  thread_ = base::quiet_thread([this] { work(); });
}

Monitor::~Monitor() {
  endpoint_.reset();
  {
    const base::Lock lock(mutex_);
    seen_.closing = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Monitor::rank_started(const launch::LocalRank& rank, pid_t pid) {
  const base::Lock lock(mutex_);
  std::erase_if(seen_.ranks, [&](const RankProcess& one) { return one.rank == rank.rank; });
  seen_.ranks.push_back({rank.rank, pid, rank.device});
  seen_.new_ranks = true;
}

void Monitor::see(std::span<const journal::PageView> pages) {
  const base::Lock lock(mutex_);
  for (const journal::PageView& page : pages)
    seen_.pages[static_cast<int>(page.rank)] = {std::string(journal::name_of(page.phase)), page.step};
}

void Monitor::hear(const Json& metrics_line) {
  if (!metrics_line.is_object()) return;
  const base::Lock lock(mutex_);
  if (const std::int64_t total = integer(metrics_line, "total_steps"); total > 0) seen_.total_steps = total;
  if (metrics_line.contains("loss")) seen_.last_step = metrics_line;
  seen_.lines.push_back(metrics_line);
}

std::vector<std::string> Monitor::take_news() {
  const base::Lock lock(mutex_);
  return std::exchange(seen_.news, {});
}

std::string Monitor::exposition() const {
  base::Lock lock(mutex_);
  const auto total = seen_.total_steps;
  const Json last = seen_.last_step;
  const Reading reading = seen_.reading;
  lock.unlock();
  return prometheus_text(options_.folder.root.filename().string(), total, last, reading);
}

void Monitor::work() {
  ::pthread_setname_np(::pthread_self(), "monitor");
  std::optional<Reader> reader;
  std::vector<UsedGpu> gpus;
  const auto every = std::chrono::duration<double>(options_.facts.every_s);
  base::Lock lock(mutex_);
  for (bool closing = false; !closing;) {
    wake_.wait_for(lock, every, [this]() LOCKSTEP_REQUIRES(mutex_) { return seen_.closing; });
    closing = seen_.closing;
    if (seen_.ranks.empty()) continue;
    const auto ranks = seen_.ranks;
    const bool new_ranks = std::exchange(seen_.new_ranks, false);
    const auto lines = std::exchange(seen_.lines, {});
    lock.unlock();
    if (!reader) {
      const bool on_gpu = std::any_of(ranks.begin(), ranks.end(), [](const RankProcess& rank) { return rank.device.starts_with("cuda"); });
      reader.emplace(on_gpu ? std::make_unique<launch::Nvml>(options_.nvml) : nullptr);
    }
    if (new_ranks) {
      gpus = reader->nvml() != nullptr ? used_gpus(*reader->nvml(), ranks, options_.visible_devices) : std::vector<UsedGpu>();
      lines_.write(machine_line(options_.facts, gpus, ranks));
    }
    look(*reader, gpus);
    for (const Json& line : lines) {
      if (line.contains("loss")) judge(line);
      pass_on(line);
    }
    lock.lock();
  }
}

void Monitor::look(Reader& reader, std::vector<UsedGpu>& gpus) {
  std::vector<RankProcess> ranks;
  {
    const base::Lock lock(mutex_);
    ranks = seen_.ranks;
  }
  Reading reading = reader.read(ranks, gpus);
  std::int64_t step = 0;
  {
    const base::Lock lock(mutex_);
    for (RankNow& rank : reading.ranks) {
      const auto page = seen_.pages.find(rank.rank);
      if (page != seen_.pages.end()) std::tie(rank.phase, rank.step) = page->second;
      step = std::max(step, rank.step);
    }
    seen_.reading = reading;
  }
  lines_.write(reading_line(reading));
  stragglers_.hear(reading);
  if (!options_.tensorboard || step <= scalars_step_ || base::seconds_since(scalars_ns_) < scalars_every_s) return;
  if (!scalars_)
    scalars_ = std::make_unique<journal::TensorBoardWriter>(
        options_.folder.root / "tensorboard" / ("machine-" + std::to_string(options_.facts.machine)), step - 1);
  scalars_step_ = step;
  scalars_ns_ = base::now_ns();
  scalars_->write(step, scalars_of(reading));
}

// To W&B: each start of the run has a file of its own.
void Monitor::pass_on(const Json& line) {
  if (!options_.wandb) return;
  const bool starts = line.value("event", "") == "started";
  if (starts || !wandb_) {
    auto options = *options_.wandb;
    options.resumed_at_step = starts ? integer(line, "step") : 0;
    wandb_.reset();
    wandb_ = std::make_unique<journal::WandbWriter>(options_.folder.root / "wandb", options);
  }
  if (const auto scalars = scalars_of(line); !scalars.empty()) wandb_->write(integer(line, "step"), scalars);
}

void Monitor::judge(const Json& step) {
  const std::int64_t number = integer(step, "step");
  // A restart counts from an earlier step; the first line's steps are not known.
  const std::int64_t steps = judged_step_ > 0 && number > judged_step_ ? number - judged_step_ : 1;
  judged_step_ = number;
  const auto ranks = rank_seconds(step);
  if (ranks.size() < 2) return;
  const auto verdict = stragglers_.hear(ranks, static_cast<double>(steps));
  if (!verdict) return;
  lines_.write(straggler_line(*verdict));
  const base::Lock lock(mutex_);
  seen_.news.push_back(verdict->text);
}

}  // namespace lockstep::monitor
