// Compares every machine with machine 0.
#include "front/launch/meet/gathering.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash/sha256.h"
#include "base/text.h"
#include "front/launch/watch.h"

namespace lockstep::launch::meet {
namespace {

constexpr std::size_t shortest_secret = 16;
constexpr double first_pause_s = 15, longest_pause_s = 120;

std::string unshared(const Rendezvous& rendezvous, const Facts& first, const Facts& other) {
  for (std::size_t i = 0; i < other.folders.size(); ++i) {
    const SharedFolder& folder = other.folders[i];
    if (folder.seen) continue;
    const std::string theirs = i < first.folders.size() ? first.folders[i].path : "?";
    return fmt::format("{} is not one folder that all share: {} on {} is not {} on {}", folder.setting, theirs,
                       name_of(rendezvous, 0, first.host), folder.path, name_of(rendezvous, other.node, other.host));
  }
  return {};
}

}  // namespace

std::string name_of(const Rendezvous& rendezvous, int node, const std::string& host) {
  return fmt::format("{} {} ({})", rendezvous.ranks_are_machines ? "rank" : "machine", node, host);
}

std::string who_is_missing(const Rendezvous& rendezvous, const std::map<int, Facts>& here) {
  std::vector<int> missing;
  for (int node = 0; node < rendezvous.nodes; ++node) {
    if (!here.contains(node)) missing.push_back(node);
  }
  const char* noun = rendezvous.ranks_are_machines ? "rank" : "node rank";
  return fmt::format("{} of {} {} {} here; missing {}{} {}", here.size(), rendezvous.nodes,
                     rendezvous.ranks_are_machines ? "ranks" : "machines", here.size() == 1 ? "is" : "are", noun,
                     missing.size() == 1 ? "" : "s", list_ranks(missing));
}

std::optional<Refusal> find_refusal(const Rendezvous& rendezvous, const std::map<int, Facts>& here, bool restarted) {
  const Facts& first = here.at(0);
  std::vector<std::string> lines;
  bool settings_differ = false;
  for (const auto& [node, facts] : here) {
    if (node == 0) continue;
    auto found =
        journal::differences(first.identity, facts.identity, name_of(rendezvous, 0, first.host), name_of(rendezvous, node, facts.host));
    // A machine that comes back asks for the newest checkpoint; the others were told to go on from it.
    if (restarted) std::erase_if(found, [](const std::string& line) { return line.starts_with("checkpoint.resume "); });
    settings_differ = settings_differ || !found.empty();
    lines.insert(lines.end(), found.begin(), found.end());
    if (const std::string line = unshared(rendezvous, first, facts); !line.empty()) lines.push_back(line);
  }
  if (lines.empty()) return std::nullopt;
  constexpr std::size_t most_lines = 20;
  std::string text = settings_differ ? "these machines are not of one run:\n" : "these machines cannot save one run:\n";
  for (std::size_t i = 0; i < std::min(lines.size(), most_lines); ++i) text += "  " + lines[i] + ".\n";
  if (lines.size() > most_lines) text += fmt::format("  and {} more.\n", lines.size() - most_lines);
  text +=
      settings_differ
          ? "  Start all of them with the same program, settings and data; only devices, ranks, threads, --node-rank and paths may differ."
          : "  Point it at a folder that all machines share: checkpoints are put together there.";
  return Refusal{static_cast<int>(settings_differ ? base::ExitCode::usage : base::ExitCode::machine), text};
}

Agreement agree(const std::map<int, Facts>& here, int node) {
  Agreement agreement;
  agreement.world_size = 0;
  for (const auto& [other, facts] : here) {
    if (other == node) agreement.first_rank = agreement.world_size;
    agreement.world_size += facts.ranks;
  }
  return agreement;
}

bool Sparingly::worth_saying(const std::string& line) {
  const bool changed = line != last_;
  if (!changed && base::seconds_since(said_ns_) < wait_s_) return false;
  wait_s_ = changed ? first_pause_s : std::min(2 * wait_s_, longest_pause_s);
  last_ = line;
  said_ns_ = base::now_ns();
  return true;
}

std::string given_secret(const Environment& environment) {
  const std::string secret = base::trim(lookup(environment, "LOCKSTEP_SECRET").value_or(""));
  if (!secret.empty() && secret.size() < shortest_secret) {
    throw base::usage_error("launch", "LOCKSTEP_SECRET has {} characters; it needs at least {}. `openssl rand -hex 16` makes a good one.",
                            secret.size(), shortest_secret);
  }
  return secret;
}

std::string fresh_secret() { return base::to_hex(base::random_bytes(16)); }

}  // namespace lockstep::launch::meet
