// Starts rank processes by running this program again with the current test's name as its filter.
#include "support/ranks/run_ranks.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "base/files.h"
#include "config/config.h"
#include "rank/kernels/session.h"

extern char** environ;

namespace lockstep::testing {
namespace {

std::string current_test() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

// Which call within its test this is: a rank runs that test alone and must stop at the same one.
int next_call() {
  static std::string test;
  static int calls = 0;
  if (std::exchange(test, current_test()) != test) calls = 0;
  return calls++;
}

// Below the ports that the system gives to outgoing connections: one of those could take it before rank 0 listens.
int free_port() {
  constexpr int first = 20000, count = 10000;
  static int next = static_cast<int>(::getpid() * 37 % count);
  for (int tries = 0; tries < count; ++tries) {
    const int port = first + (next = (next + 1) % count);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const bool free = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(socket);
    if (free) return port;
  }
  return 0;
}

at::Device test_device() {
  const char* name = std::getenv("LOCKSTEP_TEST_DEVICE");
  return at::Device(name != nullptr ? name : "cpu");
}

[[noreturn]] void be_a_rank(config::Backend backend, const RankFunction& function,
                            const std::function<void(comm::World::Options&)>& change) {
  int code = 1;
  try {
    const at::Device device = test_device();
    const kernels::Session session(device, /*deterministic=*/false);  // on a GPU it brings LibTorch's part for it
    comm::World::Options options{.place = comm::place_from_environment(), .backend = backend, .device = device, .timeout_s = 30};
    change(options);
    comm::World world(options, std::make_shared<journal::PageWriter>("", 0));
    // What is tried on a GPU is NCCL: a fallback would pass in its place.
    const bool expects_nccl =
        backend == config::Backend::automatic && !options.nccl && world.device().is_cuda() && world.everyone().size() > 1;
    if (expects_nccl && world.backend() != config::Backend::nccl)
      throw std::runtime_error("these ranks meet over " + std::string(config::name_of(world.backend())) +
                               ", not nccl: " + world.fallback());
    const std::vector<double> numbers = function(world);
    std::ofstream out(std::getenv("LOCKSTEP_TEST_RESULT"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size() * sizeof(double)));
    out.flush();
    world.everyone().barrier("end of a test");
    code = ::testing::Test::HasFailure() ? 1 : 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  std::cout.flush();
  std::_Exit(code);
}

pid_t start_rank(int rank, int ranks, int port, int call, const std::string& folder) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  const auto add = [&](const std::string& name, const std::string& value) { variables.push_back(name + "=" + value); };
  add("RANK", std::to_string(rank));
  add("LOCAL_RANK", std::to_string(rank));
  add("WORLD_SIZE", std::to_string(ranks));
  add("LOCAL_WORLD_SIZE", std::to_string(ranks));
  add("MASTER_ADDR", "127.0.0.1");
  add("MASTER_PORT", std::to_string(port));
  add("OMP_NUM_THREADS", "1");
  add("NCCL_HOSTID", "rank" + std::to_string(rank));
  add("LOCKSTEP_TEST_CALL", std::to_string(call));
  add("LOCKSTEP_TEST_RESULT", folder + "/result-" + std::to_string(rank));
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::string filter = "--gtest_filter=" + current_test();
  char* arguments[] = {program.data(), filter.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string log = folder + "/log-" + std::to_string(rank);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  if (posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environment.data()) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

}  // namespace

bool is_a_rank() { return std::getenv("LOCKSTEP_TEST_CALL") != nullptr; }

std::vector<RankOutcome> try_ranks(int ranks, config::Backend backend, const RankFunction& function, double deadline_s,
                                   const std::function<void(comm::World::Options&)>& change) {
  const int call = next_call();
  if (const char* wanted = std::getenv("LOCKSTEP_TEST_CALL")) {
    if (std::stoi(wanted) == call) be_a_rank(backend, function, change);
    return std::vector<RankOutcome>(static_cast<std::size_t>(ranks));  // an earlier call, on the way to ours
  }
  char pattern[] = "/tmp/lockstep-ranks-XXXXXX";
  const std::string folder = ::mkdtemp(pattern);
  const int port = free_port();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) pids.push_back(start_rank(rank, ranks, port, call, folder));
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    while (::waitpid(pids[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(pids[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    outcome.log = base::read_text(folder + "/log-" + std::to_string(rank));
    const std::string result = folder + "/result-" + std::to_string(rank);
    if (std::filesystem::exists(result)) {
      const std::string bytes = base::read_text(result);
      outcome.numbers.resize(bytes.size() / sizeof(double));
      std::memcpy(outcome.numbers.data(), bytes.data(), bytes.size());
    }
  }
  std::filesystem::remove_all(folder);
  return outcomes;
}

std::vector<std::vector<double>> run_ranks(int ranks, config::Backend backend, const RankFunction& function) {
  std::vector<std::vector<double>> numbers;
  std::vector<RankOutcome> outcomes = try_ranks(ranks, backend, function);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].exit_code != 0) {
      ADD_FAILURE() << "rank " << rank << " of " << ranks << " ended with " << outcomes[rank].exit_code << ":\n" << outcomes[rank].log;
      break;
    }
  }
  for (RankOutcome& outcome : outcomes) numbers.push_back(std::move(outcome.numbers));
  return numbers;
}

}  // namespace lockstep::testing
