// Watches the devices and processes of this machine while a run lasts, once a second, on a thread of its own. Read this header first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "front/launch/launch.h"
#include "front/monitor/lines.h"
#include "front/monitor/prometheus.h"
#include "journal/page.h"
#include "journal/scalars/tensorboard.h"
#include "journal/scalars/wandb.h"
#include "journal/thinned_lines.h"

namespace lockstep::monitor {

// Writes monitor/machine-N.jsonl, and where asked for TensorBoard's and W&B's files, and serves Prometheus. What fails costs the run
// nothing but the numbers.
class Monitor {
 public:
  struct Options {
    journal::RunFolder folder;
    MachineFacts facts;
    std::optional<std::string> visible_devices = {};  // CUDA_VISIBLE_DEVICES of the ranks
    int prometheus_port = 0;                          // 0: none
    bool tensorboard = false;
    std::optional<journal::WandbWriter::Options> wandb = {};  // none: no files for W&B
    const char* nvml = "libnvidia-ml.so.1";                   // another one in tests
  };
  // UserError(machine) where Prometheus' port is taken.
  explicit Monitor(Options options);
  ~Monitor();  // after a last line
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // What the run's supervisor hears; any thread.
  void rank_started(const launch::LocalRank& rank, pid_t pid);
  void see(std::span<const journal::PageView> pages);
  void hear(const nlohmann::json& metrics_line);
  // What people should know now, each once.
  std::vector<std::string> take_news();

 private:
  struct Seen {
    std::vector<RankProcess> ranks;
    std::map<int, std::pair<std::string, std::int64_t>> pages;  // phase and step by rank
    std::vector<nlohmann::json> lines;                          // of metrics.jsonl, not looked at yet
    nlohmann::json last_step;
    std::int64_t total_steps = 0;
    Reading reading;
    std::vector<std::string> news;
    bool new_ranks = false, closing = false;
  };
  void work();
  void look(Reader& reader, std::vector<UsedGpu>& gpus);
  void judge(const nlohmann::json& step);
  void pass_on(const nlohmann::json& line);
  std::string exposition() const;

  const Options options_;
  mutable base::Mutex mutex_;
  base::Condition wake_;
  Seen seen_ LOCKSTEP_GUARDED_BY(mutex_);
  // The thread's own:
  journal::ThinnedLines lines_;
  std::unique_ptr<journal::TensorBoardWriter> scalars_;
  std::unique_ptr<journal::WandbWriter> wandb_;
  std::int64_t scalars_step_ = 0, scalars_ns_ = 0;
  Stragglers stragglers_;
  std::int64_t judged_step_ = 0;
  std::unique_ptr<Endpoint> endpoint_;
  std::thread thread_;
};

}  // namespace lockstep::monitor
