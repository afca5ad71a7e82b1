// Reads the order and carries it out.
#include "rank/train/watch/faults.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::train {
namespace {

std::int64_t whole_number(const std::string& text) {
  const auto value = base::parse_integer(text);
  if (!value) throw base::usage_error("faults", "LOCKSTEP_TEST_FAULT: '{}' is not a whole number.", text);
  return *value;
}

class SlowFiles final : public base::FileSystem {
 public:
  explicit SlowFiles(std::int64_t ms) : ms_(ms) {}
  std::unique_ptr<base::FileWriter> create(const std::filesystem::path& path) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms_));
    return base::real_files().create(path);
  }
  std::unique_ptr<base::FileWriter> open_to_share(const std::filesystem::path& path, std::uint64_t size) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms_));
    return base::real_files().open_to_share(path, size);
  }
  std::unique_ptr<base::FileAppender> open_to_append(const std::filesystem::path& path) override {
    return base::real_files().open_to_append(path);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override { base::real_files().rename(from, to); }
  void sync_directory(const std::filesystem::path& path) override { base::real_files().sync_directory(path); }
  void create_directories(const std::filesystem::path& path) override { base::real_files().create_directories(path); }
  void remove_all(const std::filesystem::path& path) override { base::real_files().remove_all(path); }
  std::optional<std::uint64_t> size(const std::filesystem::path& path) override { return base::real_files().size(path); }
  std::size_t read_at(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> bytes) override {
    return base::real_files().read_at(path, offset, bytes);
  }

 private:
  std::int64_t ms_;
};

// In state D, as where a disk does not answer: the kernel holds who calls vfork() until the child has left.
void sleep_deeply(double seconds) {
  const pid_t child = ::vfork();  // NOLINT(bugprone-unsafe-functions): to be held by it is what is wanted here
  if (child == 0) {
    ::sleep(static_cast<unsigned>(seconds));
    ::_exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

}  // namespace

Faults Faults::from_environment(int rank) {
  Faults faults;
  const char* text = std::getenv("LOCKSTEP_TEST_FAULT");
  if (text == nullptr || *text == '\0') return faults;
  Order order;
  std::int64_t target_rank = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto parts = base::split(word, '=');
    if (parts.size() != 2) throw base::usage_error("faults", "LOCKSTEP_TEST_FAULT: '{}' is not name=value.", word);
    if (parts[0] == "rank") target_rank = whole_number(parts[1]);
    if (parts[0] == "step") order.step = order.last_step = whole_number(parts[1]);
    if (parts[0] == "until") order.last_step = whole_number(parts[1]);
    if (parts[0] == "phase") order.phase = parts[1];
    if (parts[0] == "samples") order.samples = whole_number(parts[1]);
    if (parts[0] == "seconds") order.seconds = static_cast<double>(whole_number(parts[1]));
    if (parts[0] == "ms") order.ms = whole_number(parts[1]);
    if (parts[0] == "once") order.once = parts[1];
    if (parts[0] == "action") order.action = parts[1];
  }
  if (target_rank != rank) return faults;
  if (order.action == "slow_disk") faults.slow_files_ = std::make_shared<SlowFiles>(order.ms);
  faults.order_ = std::move(order);
  return faults;
}

base::FileSystem& Faults::files() const { return slow_files_ ? *slow_files_ : base::real_files(); }

bool Faults::spoils_loss(std::int64_t step) const {
  return order_ && order_->action == "nan" && step >= order_->step && step <= order_->last_step;
}

std::function<std::shared_ptr<comm::Transport>()> Faults::broken_nccl() const {
  if (!order_ || order_->action != "nccl") return {};
  return []() -> std::shared_ptr<comm::Transport> { throw base::machine_error("comm", "a test asked NCCL to fail on this rank."); };
}

void Faults::at(journal::Phase phase, std::int64_t step, const comm::Group& group) const {
  const auto strikes_here = [&] {
    for (const char* other : {"nan", "memory", "hide_progress", "slow_disk", "drift", "slow"}) {
      if (order_->action == other) return false;
    }
    return true;
  };
  if (order_ && order_->action == "slow" && step >= order_->step && step <= order_->last_step && order_->phase == journal::name_of(phase))
    std::this_thread::sleep_for(std::chrono::milliseconds(order_->ms));
  if (!order_ || !strikes_here() || step != order_->step || order_->phase != journal::name_of(phase)) return;
  if (!order_->once.empty() && (std::filesystem::exists(order_->once) || !std::ofstream(order_->once))) return;
  base::log_warning("test fault: {} in {} of step {}", order_->action, order_->phase, step);
  if (order_->action == "kill") ::kill(::getpid(), SIGKILL);
  if (order_->action == "segv") ::raise(SIGSEGV);
  if (order_->action == "exit") std::_Exit(7);
  if (order_->action == "stop") ::raise(SIGSTOP);
  if (order_->action == "full_memory") throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "a test leaves none");
  if (order_->action == "throw") throw std::runtime_error("a test asked this rank to fail");
  if (order_->action == "stall") std::this_thread::sleep_for(std::chrono::duration<double>(order_->seconds));
  if (order_->action == "deep_sleep") sleep_deeply(order_->seconds);
  if (order_->action == "mismatch") {
    const at::Tensor odd = at::zeros({17}, at::TensorOptions().device(group.device()));
    group.all_reduce(odd, comm::Reduce::sum, "a test's odd one out").wait();
  }
}

}  // namespace lockstep::train
