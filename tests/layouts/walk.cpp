// Gives every team its cases, and reads what its ranks left in files.
#include "layouts/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "layouts/data.h"
#include "layouts/run_case.h"
#include "support/ranks/run_ranks.h"
#include "support/temporary_folder.h"

namespace lockstep::layouts {
namespace {

constexpr double deadline_s = 1500;
constexpr const char* folder_variable = "LOCKSTEP_LAYOUTS_FOLDER";  // ranks are told by it where files are

std::filesystem::path result_file(const std::string& folder, std::size_t number, int rank) {
  return std::filesystem::path(folder) / fmt::format("case-{}.rank-{}", number, rank);
}

// A case's place in the order that all ranks go by, and who trains it.
struct Turn {
  std::size_t number;
  int first, ranks;
};

// The largest teams first; teams of one size take turns, so that ranks seldom wait for each other.
std::vector<Turn> turns_of(const std::vector<Job>& jobs, int all_ranks) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < jobs.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ranks_of(jobs[a].one) > ranks_of(jobs[b].one); });
  std::vector<Turn> turns;
  std::map<int, int> of_size;
  for (const std::size_t number : order) {
    const int ranks = ranks_of(jobs[number].one), team = of_size[ranks]++ % (all_ranks / ranks);
    turns.push_back({number, team * ranks, ranks});
  }
  return turns;
}

// Worlds come and go over one store, which the first rank's own world serves: each has keys of its own.
comm::Place place_in(const Turn& turn, int rank) {
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "1", 1);
  ::setenv("LOCKSTEP_RUN_KEY", fmt::format("case {}", turn.number).c_str(), 1);
  comm::Place place = comm::place_from_environment();
  place.rank = place.local_rank = rank - turn.first;
  place.world_size = place.local_world_size = turn.ranks;
  return place;
}

void train_in_turn(const Table& table, const std::vector<Job>& jobs, const std::string& folder, const comm::World& world) {
  const int rank = world.place().rank;
  for (const Turn& turn : turns_of(jobs, world.place().world_size)) {
    if (rank < turn.first || rank >= turn.first + turn.ranks) continue;
    const comm::Place place = place_in(turn, rank);
    const Job& job = jobs[turn.number];
    run_case(table, job.one, job.rule, folder, {.device = world.device(), .place = place})
        .write(result_file(folder, turn.number, place.rank));
  }
}

}  // namespace

std::vector<Walked> walk(const Table& table, const std::vector<Job>& jobs, int ranks) {
  std::optional<support::TemporaryFolder> own;
  if (std::getenv(folder_variable) == nullptr) {
    own.emplace();
    write_data(own->path());
    ::setenv(folder_variable, own->path().c_str(), 1);
  }
  const std::string folder = std::getenv(folder_variable);
  const auto outcomes = testing::try_ranks(
      ranks, config::Backend::cpu,
      [&](comm::World& world) {
        train_in_turn(table, jobs, folder, world);
        return std::vector<double>{};
      },
      deadline_s, [](comm::World::Options& options) { options.timeout_s = deadline_s; });
  if (testing::is_a_rank()) return {};  // its own walk is a later one
  ::unsetenv(folder_variable);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
    EXPECT_EQ(outcomes[rank].exit_code, 0) << "rank " << rank << ":\n" << outcomes[rank].log;
  std::vector<Walked> walked;
  for (std::size_t number = 0; number < jobs.size(); ++number) {
    Walked& one = walked.emplace_back(Walked{jobs[number], {}, {}});
    std::vector<RankResult> found;
    for (int rank = 0; rank < ranks_of(jobs[number].one); ++rank) {
      const std::filesystem::path file = result_file(folder, number, rank);
      if (!std::filesystem::exists(file)) one.wrong.push_back(fmt::format("rank {} left no result", rank));
      if (one.wrong.empty()) found.push_back(RankResult::read(file));
    }
    if (one.wrong.empty()) one.result = Result::of(found, one.wrong);
  }
  return walked;
}

}  // namespace lockstep::layouts
