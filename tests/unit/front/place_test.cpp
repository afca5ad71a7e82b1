// Environments of other launchers.
#include "front/launch/place.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::launch {
namespace {

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Environment five = {{"RANK", "3"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29511"}};
const Environment torchrun = {{"RANK", "1"},
                              {"LOCAL_RANK", "1"},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Environment slurm = {{"SLURM_PROCID", "5"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_NTASKS_PER_NODE", "4"},
                           {"SLURM_JOB_ID", "77"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NODELIST", "node[02-03]"},
                           {"SLURM_SUBMIT_DIR", "/home"}};
const Environment mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "job-1"}};

TEST(Place, NoLauncher) {
  for (const auto& environment : std::vector<Environment>{
           {},
           {{"HOME", "/root"}, {"OMP_NUM_THREADS", "2"}},
           {{"RANK", ""}, {"WORLD_SIZE", ""}},               // empty is not set
           {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}},  // salloc
           {{"SLURM_PROCID", "0"},
            {"SLURM_NTASKS", "8"},
            {"SLURM_LOCALID", "0"},
            {"SLURM_SUBMIT_DIR", "/home"}},                                                                 // the sbatch script itself
           {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_ID", "0"}},  // srun -n1: all GPUs are ours
       }) {
    EXPECT_FALSE(place_from_launcher(environment));
  }
}

TEST(Place, Launchers) {
  struct Case {
    std::string launcher;
    Environment environment;
    int rank, local_rank, world, local_world;
    std::string address;
    int port;  // 0: any
  };
  for (const auto& c : std::vector<Case>{
           {"the environment", five, 3, 1, 4, 2, "node0", 29511},
           {"the environment", with(five, {{"LOCAL_WORLD_SIZE", "4"}}), 3, 1, 4, 4, "node0", 29511},
           {"the environment", with(five, {{"MASTER_ADDR", "localhost"}}), 3, 1, 4, 4, "localhost", 29511},
           {"torchrun", torchrun, 1, 1, 2, 2, "127.0.0.1", 29500},
           {"srun", slurm, 5, 1, 8, 4, "node02", 0},
           {"srun", with(slurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "12345"}}), 5, 1, 8, 4, "10.0.0.1", 12345},
           {"srun", {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}}, 1, 1, 2, 2, "127.0.0.1", 0},
           {"mpirun", mpi, 1, 1, 2, 2, "127.0.0.1", 0},
           {"mpirun",
            {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
            0,
            0,
            2,
            2,
            "127.0.0.1",
            0},
       }) {
    const auto place = place_from_launcher(c.environment);
    ASSERT_TRUE(place) << c.launcher;
    EXPECT_EQ(place->launcher, c.launcher);
    EXPECT_EQ(place->rank, c.rank) << c.launcher;
    EXPECT_EQ(place->local_rank, c.local_rank) << c.launcher;
    EXPECT_EQ(place->world_size, c.world) << c.launcher;
    EXPECT_EQ(place->local_world_size, c.local_world) << c.launcher;
    EXPECT_EQ(place->master_addr, c.address) << c.launcher;
    if (c.port > 0) {
      EXPECT_EQ(place->master_port, c.port) << c.launcher;
    }
    EXPECT_GT(place->master_port, 1024) << c.launcher;
    EXPECT_FALSE(place->job.empty());
    EXPECT_FALSE(place->run_label.empty());
  }
}

TEST(Place, RanksOfOneJobAgreeAndOtherJobsDiffer) {
  const auto first = place_from_launcher(with(slurm, {{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "0"}}));
  const auto second = place_from_launcher(slurm);
  const auto other = place_from_launcher(with(slurm, {{"SLURM_JOB_ID", "78"}}));
  EXPECT_EQ(first->job, second->job);
  EXPECT_EQ(first->run_label, "slurm-77.0");
  EXPECT_EQ(first->run_label, second->run_label);
  EXPECT_EQ(first->master_port, second->master_port);
  EXPECT_NE(first->job, other->job);
  EXPECT_NE(first->run_label, other->run_label);
  // A restart by torchrun is another set of pages, but the same run.
  const auto again = place_from_launcher(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_NE(again->job, place_from_launcher(torchrun)->job);
  EXPECT_EQ(again->run_label, place_from_launcher(torchrun)->run_label);
  EXPECT_EQ(place_from_launcher(with(torchrun, {{"TORCHELASTIC_RUN_ID", "exp/7"}}))->run_label, "exp_7");
}

// What `srun -n 3` sets on two nodes, with nothing said of ranks a node.
Environment srun_task(int rank, const std::string& tasks_per_node = "2,1") {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NTASKS", "3"},
          {"SLURM_LOCALID", std::to_string(rank % 2)},
          {"SLURM_NODEID", std::to_string(rank / 2)},
          {"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "node[02-03]"},
          {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node}};
}

TEST(Place, RanksKnowAlikeWhetherTheyAreOnOneHost) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto place = place_from_launcher(srun_task(rank));
    EXPECT_EQ(place->local_world_size, rank < 2 ? 2 : 1);
    EXPECT_FALSE(place->on_one_host);
    // The last node has fewer than were asked for.
    EXPECT_EQ(place_from_launcher(with(srun_task(rank), {{"SLURM_NTASKS_PER_NODE", "2"}}))->local_world_size, rank < 2 ? 2 : 1);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Environment of_slurm = with(srun_task(rank, "2"), {{"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", "node02"}});
    EXPECT_TRUE(place_from_launcher(of_slurm)->on_one_host);
    EXPECT_EQ(place_from_launcher(of_slurm)->local_world_size, 2);
    // By hand, with the address of a machine: nothing tells rank 0 that rank 1 is here too, so rank 1 may not think so either.
    const Environment by_hand = with(five, {{"RANK", std::to_string(rank)}, {"LOCAL_RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}});
    EXPECT_FALSE(place_from_launcher(by_hand)->on_one_host);
    EXPECT_TRUE(place_from_launcher(with(by_hand, {{"LOCAL_WORLD_SIZE", "2"}}))->on_one_host);
    EXPECT_TRUE(place_from_launcher(with(by_hand, {{"MASTER_ADDR", "127.0.0.1"}}))->on_one_host);
  }
}

TEST(Place, MpirunUsesSrunToReachOtherNodes) {
  const Environment four = with(mpi, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node0"}});
  const auto here = place_from_launcher(
      with(four, {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_SUBMIT_DIR", "/home"}}));
  const auto there = place_from_launcher(with(with(four, slurm), {{"OMPI_COMM_WORLD_RANK", "3"}}));
  EXPECT_EQ(there->launcher, "mpirun");
  EXPECT_EQ(there->rank, 3);
  EXPECT_EQ(there->world_size, 4);
  EXPECT_EQ(there->local_world_size, 2);
  EXPECT_EQ(there->master_port, here->master_port);
  EXPECT_EQ(there->run_label, here->run_label);
}

TEST(Place, WhatIsMissingIsNamed) {
  struct Case {
    Environment environment;
    std::vector<std::string> says;
  };
  std::vector<Case> cases = {
      {{{"RANK", "0"}}, {"LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "are missing", "--spawn"}},
      {{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, {"RANK, LOCAL_RANK, WORLD_SIZE are missing"}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, {"LOCAL_RANK (or SLURM_LOCALID) is missing"}},
      {with(mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}), {"MASTER_ADDR is missing", "mpirun"}},
      {with(five, {{"RANK", "x"}}), {"RANK=x is not a number"}},
      {with(five, {{"RANK", "4"}}), {"RANK=4", "WORLD_SIZE=4"}},
      {with(five, {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}}), {"LOCAL_RANK=3", "do not fit"}},
  };
  for (const auto& [name, value] : five) {
    Environment four = five;
    four.erase(name);
    cases.push_back({four, {name + " is missing"}});
  }
  for (const auto& c : cases) {
    try {
      place_from_launcher(c.environment);
      FAIL() << "nothing was thrown for " << c.says[0];
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::usage);
      for (const auto& text : c.says)
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << text << " is not in: " << error.what();
    }
  }
}

TEST(Place, FirstHostOfASlurmList) {
  EXPECT_EQ(first_host("alpha"), "alpha");
  EXPECT_EQ(first_host("alpha,beta"), "alpha");
  EXPECT_EQ(first_host("node[01-03,7]"), "node01");
  EXPECT_EQ(first_host("node[7,9]"), "node7");
  EXPECT_EQ(first_host("a1,node[01-03]"), "a1");
}

TEST(Place, TasksOfASlurmNode) {
  EXPECT_EQ(tasks_on_node("4", 0), 4);
  EXPECT_EQ(tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_on_node("2(x3),1", 4), std::nullopt);
  for (const char* broken : {"", "x", "2(x", "2(xy)", "2()"}) EXPECT_EQ(tasks_on_node(broken, 0), std::nullopt) << broken;
}

}  // namespace
}  // namespace lockstep::launch
