// Makes sure, through the store, that all ranks are of one run: where launchers cannot, because the store is torchrun's.
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "rank/comm/transport.h"
#include "journal/identity.h"

namespace lockstep::comm {
namespace {

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string called(int rank, std::string_view card) { return fmt::format("rank {} ({})", rank, card.substr(0, card.find('\n'))); }

// Every rank's card is its host and its facts.
std::string compare_all(c10d::Store& store, int world_size) {
  const auto card_of = [&](int rank) { return text_of(store.get(fmt::format("one run/{}", rank))); };
  const auto facts_of = [](const std::string& card) {
    return journal::identity_from_text(std::string_view(card).substr(card.find('\n') + 1));
  };
  const std::string first = card_of(0);
  const journal::Identity mine = facts_of(first);
  std::vector<std::string> lines;
  for (int rank = 1; rank < world_size; ++rank) {
    const std::string card = card_of(rank);
    const auto found = journal::differences(mine, facts_of(card), called(0, first), called(rank, card));
    lines.insert(lines.end(), found.begin(), found.end());
  }
  constexpr std::size_t most_lines = 20;
  if (lines.size() > most_lines) lines.resize(most_lines);
  return base::join(lines, ".\n  ");
}

}  // namespace

void verify_one_run(c10d::Store& store, const Place& place, const std::string& identity) {
  store.set(fmt::format("one run/{}", place.rank), fmt::format("{}\n{}", host_name(), identity));
  if (place.rank == 0) store.set("one run/differences", "." + compare_all(store, place.world_size));
  const std::string differences = text_of(store.get("one run/differences")).substr(1);
  if (differences.empty()) return;
  throw base::usage_error(
      "comm",
      "these ranks are not of one run:\n  {}.\n  Start all of them with the same program, settings and data; only devices, "
      "threads and paths may differ.",
      differences);
}

}  // namespace lockstep::comm
