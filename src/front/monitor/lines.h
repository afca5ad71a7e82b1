// The lines of monitor/machine-N.jsonl (docs/monitoring.md says what each name means).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "front/monitor/readings.h"
#include "front/monitor/stragglers.h"
#include "journal/scalars/scalars.h"

namespace lockstep::monitor {

struct MachineFacts {
  std::string host, job;
  int machine = 0;
  double every_s = 1;
};
std::string machine_line(const MachineFacts& facts, const std::vector<UsedGpu>& gpus, const std::vector<RankProcess>& ranks);
std::string reading_line(const Reading& reading);
std::string straggler_line(const Verdict& verdict);

// The numbers of a step or an evaluation, from their line of metrics.jsonl, named as TensorBoard has them; none of an event.
std::vector<journal::Scalar> scalars_of(const nlohmann::json& line);
// What TensorBoard shows of GPUs: "gpu-0/utilization".
std::vector<journal::Scalar> scalars_of(const Reading& reading);

}  // namespace lockstep::monitor
