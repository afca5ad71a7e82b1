// Speaks a worker's protocol (page, log, metrics, checkpoints, signals, exits) without training, so that supervision can be tested with
// real processes in seconds. Started by `lockstep` through LOCKSTEP_WORKER; steered by these variables:
//   FAKE_STEPS=20 FAKE_STEP_MS=20 FAKE_SAVE=5
//   FAKE_FAULT="rank=1 step=5 phase=forward action=kill"   several orders are separated by ';', once=1 spares a restarted rank
//   FAKE_NOTICE=1   a rank that waits for a dead one fails with "connection closed by peer"; otherwise it waits on
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "journal/metrics.h"
#include "journal/page.h"
#include "journal/run_folder.h"

namespace {

using namespace lockstep;
using journal::OperationState;
using journal::Phase;

std::atomic<bool> stop_wanted = false;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}
int number(const char* name, const char* otherwise) { return std::atoi(variable(name, otherwise).c_str()); }

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// What ranks meet at: how far each has come, and who it is.
struct Meeting {
  struct Seat {
    std::atomic<long> arrivals;
    std::atomic<int> pid;
    std::atomic<int> stop;
  };
  Seat seats[64];
};

struct Order {
  std::map<std::string, std::string> words;
  std::string get(const std::string& name) const {
    const auto found = words.find(name);
    return found == words.end() ? "" : found->second;
  }
};

class FakeWorker {
 public:
  FakeWorker(std::filesystem::path config, std::filesystem::path run)
      : folder_{std::move(run)},
        rank_(number("RANK", "0")),
        world_(number("WORLD_SIZE", "1")),
        page_(variable("LOCKSTEP_PAGE", ""), rank_) {
    const std::string text = base::read_text(config);
    resumes_ = text.find("resume: auto") != std::string::npos || text.find("resume: \"auto\"") != std::string::npos;
    std::istringstream orders(variable("FAKE_FAULT", ""));
    for (std::string one; std::getline(orders, one, ';');) {
      Order order;
      std::istringstream words(one);
      for (std::string word; words >> word;) order.words[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
      if (order.get("rank") == std::to_string(rank_) && !(order.get("once") == "1" && resumes_)) orders_.push_back(order);
    }
  }

  int run() {
    enter(Phase::starting, 0);
    enter(Phase::connecting, 0);
    meet_all();
    enter(Phase::building, 0);
    enter(Phase::loading, 0);
    const auto whole = journal::list_checkpoints(folder_.checkpoints());
    const long first = resumes_ && !whole.empty() ? whole.back().step : 0;
    if (rank_ == 0) {
      metrics_ = std::make_unique<journal::MetricsWriter>(folder_.metrics(), first);
      metrics_->write_event(fmt::format(R"({{"event":"model","parameters":1,"total_steps":{}}})", steps_));
    }
    base::log_info("fake worker, device {}, {} threads, from step {}", variable("LOCKSTEP_DEVICE", "?"), variable("OMP_NUM_THREADS", "?"),
                   first);
    long step = first;
    bool stopped = false;
    while (step < steps_ && !stopped) stopped = take_step(++step);
    save(step);
    enter(Phase::finishing, step);
    if (metrics_) {
      metrics_->write_event(
          fmt::format(R"({{"event":"finished","step":{},"reason":"{}","checkpoint":null}})", step, stopped ? "stopped" : "complete"));
    }
    meet("the end");
    page_.set_phase(Phase::done, step);
    return 0;
  }

 private:
  bool take_step(long step) {
    enter(Phase::reading_data, step);
    enter(Phase::forward, step);
    pause_ms(number("FAKE_STEP_MS", "20"));
    enter(Phase::backward, step);
    enter(Phase::reducing, step);
    seat().stop = stop_wanted ? 1 : 0;
    meet("gradients of block 0");
    bool stop = false;
    for (int other = 0; other < world_; ++other) stop = stop || meeting_->seats[other].stop != 0;
    meet("the wish to stop");  // so that nobody writes a new wish before all have read
    enter(Phase::updating, step);
    if (metrics_) {
      metrics_->write(journal::StepLine{.step = step,
                                        .loss = 5.0 / static_cast<double>(step),
                                        .learning_rate = 1e-3,
                                        .trained = step * 100,
                                        .trained_per_second = 1000,
                                        .step_seconds = 0.02});
    }
    if (step % save_every_ == 0) save(step);
    return stop;
  }

  void save(long step) {
    enter(Phase::saving, step);
    if (rank_ != 0) return;
    const auto path = journal::checkpoint_folder(folder_.checkpoints(), step);
    std::filesystem::create_directories(path);
    std::ofstream(path / "manifest.json") << "{}";
    metrics_->write_event(fmt::format(R"({{"event":"checkpoint","step":{},"path":"{}"}})", step, path.string()));
  }

  void enter(Phase phase, long step) {
    page_.set_phase(phase, step);
    for (const auto& order : orders_) {
      const std::string wanted = order.get("phase").empty() ? "forward" : order.get("phase");
      if (std::atol(order.get("step").c_str()) == step && wanted == journal::name_of(phase)) carry_out(order);
    }
  }

  void carry_out(const Order& order) {
    const std::string action = order.get("action");
    base::log_warning("fault: {}", action);
    if (action == "kill") ::kill(::getpid(), SIGKILL);
    if (action == "segv") ::raise(SIGSEGV);
    if (action == "abort") std::abort();
    if (action == "bus") ::raise(SIGBUS);
    if (action == "exit") std::_Exit(std::atoi(order.get("code").c_str()));
    if (action == "fail") {
      const int code = std::atoi(order.get("code").c_str());
      page_.set_failure("[data] a test's own error", code);
      base::log_error("[data] a test's own error");
      std::_Exit(code);
    }
    if (action == "library") {
      std::fprintf(stderr, "lockstep-worker: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file\n");
      std::_Exit(127);
    }
    if (action == "stall") pause_ms(3'600'000);
    if (action == "slow") pause_ms(std::atoi(order.get("ms").c_str()));
    if (action == "stop") ::raise(SIGSTOP);
    if (action == "deaf") std::signal(SIGTERM, SIG_IGN);
    while (action == "eat") std::fill_n(new char[1 << 20], 1 << 20, 'x');  // until someone ends it
    if (action == "kind") odd_kind_ = true;
    if (action == "size") odd_size_ = true;
    if (action == "grandchild" && ::fork() == 0) {
      pause_ms(3'600'000);
      std::_Exit(0);
    }
  }

  Meeting::Seat& seat() { return meeting_->seats[rank_]; }

  // The first meeting also makes the place: a file in shared memory that the run's key tells apart from others.
  void meet_all() {
    const std::string path =
        fmt::format("{}/fake-meeting-{}", folder_.rank_logs().string(),
                    variable("TORCHELASTIC_RUN_ID", variable("LOCKSTEP_RUN_KEY", "0").c_str()) + "-" + variable("LOCKSTEP_RESTART", "0"));
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (::ftruncate(file, sizeof(Meeting)) != 0) std::_Exit(3);
    meeting_ = static_cast<Meeting*>(::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    seat().arrivals = 0;
    seat().pid = ::getpid();
    for (int other = 0; other < world_; ++other) {
      while (meeting_->seats[other].pid == 0 || ::kill(meeting_->seats[other].pid, 0) != 0) pause_ms(1);
    }
  }

  // All ranks come together, stamped as a collective.
  void meet(const char* what) {
    const std::uint64_t sequence = ++sequence_;
    const int slot = page_.stamp("world", odd_kind_ ? "broadcast" : "all_reduce", what, sequence, odd_size_ ? 68 : 4096);
    page_.mark(slot, sequence, OperationState::waited_for);
    const long mine = ++seat().arrivals;
    for (int other = 0; other < world_; ++other) {
      while (meeting_->seats[other].arrivals < mine) {
        if (number("FAKE_NOTICE", "0") == 1 && ::kill(meeting_->seats[other].pid, 0) != 0) {
          page_.set_failure(
              fmt::format("[comm] rank {}: all_reduce {} of group world ({}) failed: Connection closed by peer", rank_, sequence, what), 6);
          base::log_error("Connection closed by peer");
          std::_Exit(6);
        }
        pause_ms(1);
      }
    }
    page_.mark(slot, sequence, OperationState::finished);
  }

  journal::RunFolder folder_;
  int rank_;
  int world_;
  journal::PageWriter page_;
  std::unique_ptr<journal::MetricsWriter> metrics_;
  std::vector<Order> orders_;
  Meeting* meeting_ = nullptr;
  std::uint64_t sequence_ = 0;
  long steps_ = number("FAKE_STEPS", "20");
  long save_every_ = number("FAKE_SAVE", "5");
  bool resumes_ = false;
  bool odd_kind_ = false;
  bool odd_size_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { stop_wanted = true; });
  if (argc > 1 && std::string(argv[1]) == "generate") {
    std::printf("generate:");
    for (int i = 2; i < argc; ++i) std::printf(" %s", argv[i]);
    std::printf("\ndevice: %s\n", variable("LOCKSTEP_DEVICE", "?").c_str());
    return 0;
  }
  if (argc != 6) return 2;
  return FakeWorker(argv[3], argv[5]).run();
}
