// Ranks by job, with what their run's settings say of groups.
#include "front/app/diagnose/rank_table.h"

#include <fmt/format.h>

#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "front/launch/meet/socket.h"
#include "front/launch/watch.h"
#include "journal/run_folder.h"
#include "layout/tables.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

// Its settings say how its ranks are spread.
void find_roles(RankTable& table) {
  table.roles.assign(table.ranks.size(), "");
  std::error_code error;
  const fs::path file = journal::RunFolder{table.run}.config();
  if (table.run.empty() || table.world_size < 1 || !fs::exists(file, error)) return;
  try {
    const layout::MeshShape mesh = layout::mesh_of(config::load_resolved(file), table.world_size);
    table.spread = layout::to_text(mesh);
    for (std::size_t i = 0; i < table.ranks.size(); ++i) {
      std::vector<std::string> parts;
      for (std::size_t axis = 0; axis < layout::axis_count; ++axis) {
        const auto one = static_cast<layout::Axis>(axis);
        if (mesh.along(one) > 1)
          parts.push_back(fmt::format("{} {}", layout::name_of(one), mesh.coordinate(static_cast<int>(table.ranks[i].page.rank), one)));
      }
      table.roles[i] = base::join(parts, ", ");
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

// "GPU 3" as --gpus counts among what its job was given, or "CPU".
std::string device_of(const launch::LivingRank& rank) {
  if (rank.device.empty()) return "?";
  if (!rank.device.starts_with("cuda:")) return "CPU";
  const auto slot = base::parse_integer(rank.device.substr(5));
  const auto tokens = base::split(rank.visible_devices, ',');
  const bool known = slot && *slot >= 0 && static_cast<std::size_t>(*slot) < tokens.size() && !rank.visible_devices.empty();
  return "GPU " + (known ? tokens[static_cast<std::size_t>(*slot)] : rank.device.substr(5));
}

}  // namespace

std::vector<RankTable> tables_of_living_runs() {
  std::map<std::string, RankTable> jobs;
  for (launch::LivingRank& rank : launch::living_ranks()) {
    RankTable& table = jobs[rank.job];
    if (table.run.empty()) table.run = rank.run;
    table.world_size = std::max(table.world_size, rank.world_size.value_or(0));
    table.ranks.push_back(std::move(rank));
  }
  std::vector<RankTable> tables;
  for (auto& [job, table] : jobs) {
    find_roles(table);
    tables.push_back(std::move(table));
  }
  return tables;
}

RankTable table_of_run(const fs::path& run) {
  std::error_code error;
  for (RankTable& table : tables_of_living_runs()) {
    if (fs::equivalent(table.run, run, error)) return std::move(table);
  }
  throw base::usage_error("info", "no rank of {} lives on this machine: it is not being trained, or elsewhere.", run.string());
}

std::string to_text(const RankTable& table) {
  std::string text = fmt::format("{}, {} ranks{}\n", table.run.empty() ? "ranks that do not train" : "run " + table.run.string(),
                                 table.world_size, table.spread.empty() ? "" : ": " + table.spread);
  text += fmt::format("  {:>4} {:<16} {:<10} {:>8} {:>8}  {:<26} {}\n", "rank", "host", "device", "process", "step", "groups", "doing");
  const std::string host = launch::meet::host_name();
  for (std::size_t i = 0; i < table.ranks.size(); ++i) {
    const launch::LivingRank& rank = table.ranks[i];
    text += fmt::format("  {:>4} {:<16} {:<10} {:>8} {:>8}  {:<26} {}\n", rank.page.rank, host, device_of(rank), rank.page.pid,
                        rank.page.step, table.roles[i].empty() ? "-" : table.roles[i], doing(rank.page));
  }
  return text;
}

nlohmann::ordered_json to_json(const RankTable& table) {
  nlohmann::ordered_json json = {
      {"run", table.run.string()}, {"world_size", table.world_size}, {"spread", table.spread}, {"ranks", nlohmann::json::array()}};
  for (std::size_t i = 0; i < table.ranks.size(); ++i) {
    const launch::LivingRank& rank = table.ranks[i];
    json["ranks"].push_back({{"rank", rank.page.rank},
                             {"local_rank", rank.local_rank.value_or(-1)},
                             {"host", launch::meet::host_name()},
                             {"device", device_of(rank)},
                             {"pid", rank.page.pid},
                             {"phase", journal::name_of(rank.page.phase)},
                             {"step", rank.page.step},
                             {"groups", table.roles[i]},
                             {"doing", doing(rank.page)},
                             {"idle_seconds", base::seconds_since(rank.page.progress_ns)}});
  }
  return json;
}

}  // namespace lockstep::app
