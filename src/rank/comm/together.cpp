// A connection that all ranks have or none: each says through the store how its attempt went, and one decision holds for all.
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

// One attempt of this rank. Shared with its thread, which may never come back from a library that waits for a rank that has failed.
struct Attempt {
  base::Mutex mutex;
  base::Condition changed;
  bool over LOCKSTEP_GUARDED_BY(mutex) = false;
  std::shared_ptr<Transport> transport LOCKSTEP_GUARDED_BY(mutex);
  std::string failure LOCKSTEP_GUARDED_BY(mutex);
};

// Whoever throws it in the end puts its own room before it.
std::string first_line_without_room(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  constexpr std::string_view room = "[comm] ";
  return std::string(text.starts_with(room) ? text.substr(room.size()) : text);
}

std::shared_ptr<Attempt> begin(const c10::intrusive_ptr<c10d::Store>& store, const Connect& connect) {
  auto attempt = std::make_shared<Attempt>();
  std::thread([attempt, store, connect] {
    std::shared_ptr<Transport> transport;
    std::string failure;
    try {
      transport = connect(store->clone());
    } catch (const std::exception& error) {
      failure = first_line_without_room(error.what());
    }
    const base::Lock lock(attempt->mutex);
    attempt->transport = std::move(transport);
    attempt->failure = std::move(failure);
    attempt->over = true;
    attempt->changed.notify_all();
  }).detach();
  return attempt;
}

// The first word that any rank says is the last one: it is set once and read by all.
class Decision {
 public:
  Decision(const c10::intrusive_ptr<c10d::Store>& store, std::string_view name) : store_(store), key_(fmt::format("{}/decision", name)) {}

  void say(const std::string& word) const { store_->compareSet(key_, std::string(), word); }
  std::optional<std::string> heard() const {
    if (!store_->check({key_})) return std::nullopt;
    const std::vector<std::uint8_t> word = store_->get(key_);
    return std::string(word.begin(), word.end());
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

constexpr std::string_view all_well = "all well";

// Rank 0 may serve the store, and end over this: not before all have heard why, or some hear only that nobody answers. One that cannot
// hear any more holds nobody up for long.
void let_all_hear(c10d::Store& store, const Place& place, int ranks, std::string_view name) {
  constexpr double patience_s = 2;
  const std::string key = fmt::format("{}/heard", name);
  store.add(key, 1);
  const std::int64_t begun_ns = base::now_ns();
  while (place.rank == 0 && store.add(key, 0) < ranks && base::seconds_since(begun_ns) < patience_s)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

std::shared_ptr<Transport> connect_together(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, int ranks, double timeout_s,
                                            std::string_view name, const Connect& connect, std::string& failure) {
  const Decision decision(store, name);
  const std::string well = fmt::format("{}/well", name);
  const std::shared_ptr<Attempt> attempt = begin(store, connect);
  const std::int64_t begun_ns = base::now_ns();
  bool told = false;
  for (;;) {
    base::Lock lock(attempt->mutex);
    attempt->changed.wait_for(lock, std::chrono::milliseconds(2),
                              [&]() LOCKSTEP_REQUIRES(attempt->mutex) { return attempt->over && !told; });
    const bool over = attempt->over;
    const std::shared_ptr<Transport> transport = attempt->transport;
    const std::string own_failure = attempt->failure;
    lock.unlock();
    if (over && !std::exchange(told, true)) {
      if (!own_failure.empty())
        decision.say(own_failure);
      else if (store->add(well, 1) == ranks)
        decision.say(std::string(all_well));
    }
    if (const auto word = decision.heard()) {
      if (*word == all_well) return transport;
      failure = *word;
      let_all_hear(*store, place, ranks, name);
      return nullptr;
    }
    if (base::seconds_since(begun_ns) > timeout_s) {
      decision.say(told ? fmt::format("rank {} waited {:.0f} s for {} on the other ranks.", place.rank, timeout_s, name)
                        : fmt::format("{} did not connect rank {} within {:.0f} s.", name, place.rank, timeout_s));
    }
  }
}

}  // namespace lockstep::comm
