// Ranks by job, with what their run's settings say of groups.
#include "front/app/diagnose/rank_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "front/launch/living.h"
#include "front/launch/meet/socket.h"
#include "front/launch/watch.h"
#include "front/runs/live_run.h"
#include "journal/run_folder.h"
#include "layout/tables.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Its settings say how its ranks are spread.
void find_groups(RankTable& table) {
  std::error_code error;
  const fs::path file = journal::RunFolder{table.run}.config();
  if (table.run.empty() || table.world_size < 1 || !fs::exists(file, error)) return;
  try {
    const layout::MeshShape mesh = layout::mesh_of(config::load_resolved(file), table.world_size);
    table.spread = layout::to_text(mesh);
    for (RankRow& row : table.rows) {
      std::vector<std::string> parts;
      for (std::size_t axis = 0; axis < layout::axis_count; ++axis) {
        const auto one = static_cast<layout::Axis>(axis);
        if (mesh.along(one) > 1) parts.push_back(fmt::format("{} {}", layout::name_of(one), mesh.coordinate(row.rank, one)));
      }
      row.groups = base::join(parts, ", ");
    }
  } catch (const base::UserError&) {
    table.spread.clear();  // settings of another version: the rest of the table stands
  }
}

std::string doing(const journal::PageView& page) {
  if (page.process == journal::ProcessState::gone) return "gone";
  if (page.process == journal::ProcessState::stopped) return "stopped (state T)";
  const journal::Operation* operation = launch::waits_in(page);
  return operation != nullptr ? "waits in " + launch::describe(*operation) : std::string(journal::describe(page.phase));
}

// "cuda:1" among the GPUs that its job was given, as CUDA_VISIBLE_DEVICES names them.
std::string device_name(const std::string& device, const std::string& visible_devices) {
  if (device.empty()) return "?";
  if (!device.starts_with("cuda:")) return "CPU";
  const auto slot = base::parse_integer(device.substr(5));
  const auto tokens = base::split(visible_devices, ',');
  const bool known = slot && *slot >= 0 && static_cast<std::size_t>(*slot) < tokens.size() && !visible_devices.empty();
  return "GPU " + (known ? tokens[static_cast<std::size_t>(*slot)] : device.substr(5));
}

RankRow row_of(const launch::LivingRank& rank) {
  return {.rank = static_cast<int>(rank.page.rank),
          .host = launch::meet::host_name(),
          .device = device_name(rank.device, rank.visible_devices),
          .pid = rank.page.pid,
          .step = rank.page.step,
          .phase = std::string(journal::name_of(rank.page.phase)),
          .groups = {},
          .doing = doing(rank.page)};
}

// What the run folder says of a machine: its ranks, and how they stood at its last sample.
std::vector<RankRow> rows_of(const runs::MachineView& machine) {
  std::vector<RankRow> rows;
  for (const Json& rank : machine.machine.value("ranks", Json::array())) {
    RankRow row{.rank = rank.value("rank", 0),
                .host = machine.machine.value("host", "?"),
                .device = device_name(rank.value("device", ""), ""),
                .pid = rank.value("pid", std::int64_t{0})};
    if (machine.last.is_object()) {
      for (const Json& now : machine.last.value("ranks", Json::array())) {
        if (now.value("rank", -1) != row.rank) continue;
        row.step = now.value("step", std::int64_t{0});
        row.phase = row.doing = now.value("phase", "");
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_other_machines(RankTable& table, const fs::path& run) {
  runs::LiveRun live(run);
  live.poll();
  if (live.view().state != runs::State::training) return;
  for (const auto& [file, machine] : live.machines()) {
    if (!machine.machine.is_object()) continue;
    for (RankRow& row : rows_of(machine)) {
      const bool known = std::any_of(table.rows.begin(), table.rows.end(), [&](const RankRow& one) { return one.rank == row.rank; });
      if (!known) table.rows.push_back(std::move(row));
    }
  }
  std::sort(table.rows.begin(), table.rows.end(), [](const RankRow& a, const RankRow& b) { return a.rank < b.rank; });
  table.world_size = std::max(table.world_size, static_cast<int>(table.rows.size()));
}

}  // namespace

std::vector<RankTable> tables_of_living_runs() {
  std::map<std::string, RankTable> jobs;
  for (const launch::LivingRank& rank : launch::living_ranks()) {
    RankTable& table = jobs[rank.job];
    if (table.run.empty()) table.run = rank.run;
    table.world_size = std::max(table.world_size, rank.world_size.value_or(0));
    table.rows.push_back(row_of(rank));
  }
  std::vector<RankTable> tables;
  for (auto& [job, table] : jobs) {
    find_groups(table);
    tables.push_back(std::move(table));
  }
  return tables;
}

RankTable table_of_run(const fs::path& run) {
  RankTable table{.run = run};
  std::error_code error;
  for (RankTable& one : tables_of_living_runs()) {
    if (fs::equivalent(one.run, run, error)) table = std::move(one);
  }
  add_other_machines(table, run);
  if (table.rows.empty()) throw base::usage_error("info", "nobody trains {} now: it has no ranks.", run.string());
  find_groups(table);
  return table;
}

std::string to_text(const RankTable& table) {
  std::string text = table.run.empty() ? "ranks that do not train\n"
                                       : fmt::format("run {}, {} ranks{}\n", table.run.string(), table.world_size,
                                                     table.spread.empty() ? "" : ": " + table.spread);
  text += fmt::format("  {:>4} {:<16} {:<10} {:>8} {:>8}  {:<26} {}\n", "rank", "host", "device", "process", "step", "groups", "doing");
  for (const RankRow& row : table.rows) {
    text += fmt::format("  {:>4} {:<16} {:<10} {:>8} {:>8}  {:<26} {}\n", row.rank, row.host, row.device, row.pid, row.step,
                        row.groups.empty() ? "-" : row.groups, row.doing);
  }
  return text;
}

Json to_json(const RankTable& table) {
  Json json = {{"run", table.run.string()}, {"world_size", table.world_size}, {"spread", table.spread}, {"ranks", nlohmann::json::array()}};
  for (const RankRow& row : table.rows) {
    json["ranks"].push_back({{"rank", row.rank},
                             {"host", row.host},
                             {"device", row.device},
                             {"pid", row.pid},
                             {"phase", row.phase},
                             {"step", row.step},
                             {"groups", row.groups},
                             {"doing", row.doing}});
  }
  return json;
}

}  // namespace lockstep::app
