// Counts arrivals and signs of life in the store.
#include "rank/comm/meeting.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr double sign_every_s = 5;
constexpr milliseconds first_pause{1}, longest_pause{50};

std::string life_of(int rank) { return fmt::format("alive/{}", rank); }

// Outlives the meeting point: the thread may be inside the store when it goes, waiting for a server that does not answer.
struct Life {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  double every_s;
  base::Mutex mutex;
  base::Condition changed;
  bool over LOCKSTEP_GUARDED_BY(mutex) = false;

  void live() {
    base::Lock lock(mutex);
    while (!over) {
      lock.unlock();
      try {
        store->add(life_of(rank), 1);
      } catch (const std::exception&) {
        return;  // whoever uses the store next hears of it
      }
      lock.lock();
      changed.wait_for(lock, std::chrono::duration<double>(every_s), [this]() LOCKSTEP_REQUIRES(mutex) { return over; });
    }
  }
};

class StoreMeetingPoint final : public MeetingPoint {
 public:
  StoreMeetingPoint(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double silence_s)
      : store_(store), rank_(rank), size_(size), silence_s_(silence_s), life_(std::make_shared<Life>()) {
    life_->store = store;
    life_->rank = rank;
    life_->every_s = std::min(sign_every_s, silence_s / 4);
    std::thread([life = life_] { life->live(); }).detach();
  }
  ~StoreMeetingPoint() override {
    const base::Lock lock(life_->mutex);
    life_->over = true;
    life_->changed.notify_all();
  }

  void meet(std::uint64_t number) override {
    const std::string key = fmt::format("meeting/{}", number);
    std::vector<Sign> signs(static_cast<std::size_t>(size_), {-1, base::now_ns()});
    std::int64_t looked_ns = base::now_ns();
    milliseconds pause = first_pause;
    for (std::int64_t here = store_->add(key, 1); here < size_; here = store_->add(key, 0)) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, longest_pause);
      if (base::seconds_since(looked_ns) < life_->every_s) continue;
      looked_ns = base::now_ns();
      for (int rank = 0; rank < size_; ++rank) look_for_life(rank, signs[static_cast<std::size_t>(rank)]);
    }
  }

 private:
  struct Sign {
    std::int64_t count;
    std::int64_t changed_ns;
  };

  void look_for_life(int rank, Sign& sign) const {
    const std::int64_t count = store_->add(life_of(rank), 0);
    if (count != sign.count) sign = {count, base::now_ns()};
    if (rank == rank_ || base::seconds_since(sign.changed_ns) < silence_s_) return;
    throw std::runtime_error(
        fmt::format("stopped waiting for the other ranks: rank {} has given no sign of life for {:.0f} s", rank, silence_s_));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const double silence_s_;
  std::shared_ptr<Life> life_;
};

}  // namespace

std::shared_ptr<MeetingPoint> make_meeting_point(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double silence_s) {
  return std::make_shared<StoreMeetingPoint>(store, rank, size, silence_s);
}

}  // namespace lockstep::comm
