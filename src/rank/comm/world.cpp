// Connects this process to all others: place, store, backend, the groups of ranks and the thread that watches them.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <exception>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "config/backend.h"
#include "rank/comm/ledger.h"
#include "rank/comm/meeting.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

int integer_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const auto value = base::parse_integer(text);
  if (!value) throw base::usage_error("comm", "{}={} is not a whole number.", variable, text);
  return static_cast<int>(*value);
}

config::Backend choose(config::Backend asked, const World::Options& options) {
  const bool on_gpu = options.device.is_cuda();
  const config::Backend chosen = config::chosen_backend(asked, options.place.world_size, on_gpu || options.nccl);
  if (options.place.world_size == 1) return chosen;
  if (asked == config::Backend::single) {
    throw base::usage_error("comm", "--sync-backend single is for one rank, but there are {}. Use auto, nccl, gloo or cpu, or --ranks 1.",
                            options.place.world_size);
  }
  if (asked == config::Backend::nccl && !on_gpu) {
    throw base::usage_error("comm", "--sync-backend nccl needs GPUs, but this rank is on {}. Use gloo, or leave it out.",
                            options.device.str());
  }
  return chosen;
}

}  // namespace

Place place_from_environment() {
  Place place;
  place.rank = integer_from("RANK", 0);
  place.world_size = integer_from("WORLD_SIZE", 1);
  place.local_rank = integer_from("LOCAL_RANK", place.rank);
  place.local_world_size = integer_from("LOCAL_WORLD_SIZE", place.world_size);
  place.master_port = integer_from("MASTER_PORT", 29500);
  if (const char* address = std::getenv("MASTER_ADDR")) place.master_addr = address;
  if (place.rank < 0 || place.rank >= place.world_size) {
    throw base::usage_error("comm", "RANK={} is not within WORLD_SIZE={}.", place.rank, place.world_size);
  }
  return place;
}

struct World::Connection {
  c10::intrusive_ptr<c10d::Store> store;
  std::atomic<bool> stopping = false;
  base::Mutex mutex;
  std::function<void()> look LOCKSTEP_GUARDED_BY(mutex);
  std::deque<Member> groups LOCKSTEP_GUARDED_BY(mutex);  // everyone first; none moves once it is made
  std::thread watcher;
};

namespace {

// Through shared memory 64 MiB take 26 ms between two ranks where what is received stays in the second cache until it is added, 40 without.
constexpr std::int64_t summed_at_once = 2 << 20;

Seat seat_among(const std::vector<int>& members, int rank) {
  const auto mine = std::find(members.begin(), members.end(), rank);
  base::check(mine != members.end() && std::is_sorted(members.begin(), members.end()), "a rank asks for groups that it is in");
  return {static_cast<int>(mine - members.begin()), static_cast<int>(members.size())};
}

// NCCL's start waits for every rank: one on which it fails must be heard by the others, or they wait for it for ever.
std::shared_ptr<Transport> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, const World::Options& options, std::string& failure) {
  const auto connect = [options](const auto& keys) {
    if (options.nccl) return options.nccl();
    return make_backend_transport(
        make_nccl(keys, options.place, {options.place.rank, options.place.world_size}, options.timeout_s, options.device));
  };
  // What can be known before is: nobody is left waiting within the library then.
  const auto look = [options](const auto&) -> std::shared_ptr<Transport> {
    if (!options.nccl && !has_nccl()) make_nccl({}, options.place, {0, 1}, options.timeout_s, options.device);
    return make_single_transport();
  };
  const int ranks = options.place.world_size;
  std::shared_ptr<Transport> transport = connect_together(store, options.place, ranks, options.timeout_s, "NCCL's library", look, failure);
  return transport ? connect_together(store, options.place, ranks, options.timeout_s, "NCCL", connect, failure) : nullptr;
}

// A machine that is too busy to answer may refuse a connection once: all try again, as one rank alone would wait for the others.
std::shared_ptr<Transport> connect_gloo(const c10::intrusive_ptr<c10d::Store>& keys, const Place& place, Seat seat, double timeout_s,
                                        const std::function<void()>& before) {
  std::string failure;
  for (const char* name : {"gloo", "gloo again"}) {
    const auto own_keys = c10::make_intrusive<c10d::PrefixStore>(name, keys);
    const auto connect = [=](const auto& store) {
      if (before) before();
      return make_backend_transport(make_gloo(store, place, seat, timeout_s));
    };
    if (auto transport = connect_together(own_keys, place, seat.size, timeout_s, "gloo", connect, failure)) return transport;
    base::log_info("{}", failure);
  }
  throw base::run_error("comm", "{}", failure);
}

}  // namespace

void World::watch(std::function<void()> look) {
  const base::Lock lock(connection_->mutex);
  connection_->look = std::move(look);
}

World::World(const Options& options, std::shared_ptr<journal::PageWriter> page)
    : place_(options.place),
      backend_(choose(options.backend, options)),
      device_(options.device),
      timeout_s_(options.timeout_s),
      silence_s_(std::max(options.silence_s, options.timeout_s)),
      links_(options.links),
      before_gloo_(options.before_gloo),
      page_(std::move(page)),
      ledger_(std::make_shared<Ledger>()),
      connection_(std::make_unique<Connection>()) {
  connect_everyone(options);
  connection_->watcher = std::thread([this] {
    while (!connection_->stopping) {
      note_finished();
      {
        const base::Lock lock(connection_->mutex);
        if (connection_->look) connection_->look();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
}

void World::note_finished() const {
  const base::Lock lock(connection_->mutex);
  for (const Member& member : connection_->groups) member.group.mark_finished();
}

void World::connect_everyone(const Options& options) {
  std::vector<int> all(static_cast<std::size_t>(place_.world_size));
  std::iota(all.begin(), all.end(), 0);
  if (backend_ == config::Backend::single) {
    everyone_ = &add("world", std::move(all), make_single_transport(), {});
    return;
  }
  if (links_) {
    auto transport = make_modelled_transport({place_.rank, place_.world_size}, links_->of(all), links_->holder, device_);
    everyone_ = &add("world", std::move(all), std::move(transport), {});
    return;
  }
  connection_->store = open_store(place_, timeout_s_);
  std::shared_ptr<Transport> transport;
  if (backend_ == config::Backend::nccl) {
    std::string failure;
    transport = connect_nccl(connection_->store, options, failure);
    if (!transport && options.backend == config::Backend::nccl) throw base::machine_error("comm", "{}", failure);
    if (!transport) {
      fallback_ = fmt::format("{} All ranks fall back to --sync-backend cpu (through host memory).", failure);
      backend_ = config::Backend::cpu;
    }
  }
  if (!transport) transport = host_transport(connection_->store, all);
  everyone_ = &add("world", std::move(all), std::move(transport), connection_->store);
}

std::shared_ptr<Transport> World::host_transport(const c10::intrusive_ptr<c10d::Store>& keys, const std::vector<int>& members) const {
  const Seat seat = seat_among(members, place_.rank);
  std::shared_ptr<Transport> wire;
  if (backend_ == config::Backend::cpu) {
    std::string reason;
    wire = make_shared_memory_transport(*keys, seat, members, timeout_s_, reason);
    if (!wire)
      base::log_info("group of ranks {} to {} talks by Gloo: no memory is shared there ({})", members.front(), members.back(), reason);
  }
  const std::int64_t most_bytes = wire ? summed_at_once : 0;
  if (!wire) wire = connect_gloo(keys, place_, seat, timeout_s_, before_gloo_);
  // Gloo's own device path copies through the host as well, but blocks the stream while it does.
  return make_queued_transport(make_rank_order_transport(std::move(wire), most_bytes), device_);
}

const Group& World::group(std::string_view name, const std::vector<int>& members) {
  {
    const base::Lock lock(connection_->mutex);
    for (const Member& known : connection_->groups) {
      if (known.ranks == members) return known.group;
    }
  }
  return own_group(name, members);
}

const Group& World::own_group(std::string_view name, const std::vector<int>& members) {
  const Seat seat = seat_among(members, place_.rank);
  const std::string full_name = fmt::format("{}@{}", name, members.front());  // each rank is in one group of a name: the first tells which
  if (seat.size == 1) return add(full_name, members, make_single_transport(), {});
  if (links_) return add(full_name, members, make_modelled_transport(seat, links_->of(members), links_->holder, device_), {});
  const auto keys = c10::make_intrusive<c10d::PrefixStore>(full_name, connection_->store);
  auto transport = backend_ == config::Backend::nccl ? make_backend_transport(make_nccl(keys, place_, seat, timeout_s_, device_))
                                                     : host_transport(keys, members);
  return add(full_name, members, std::move(transport), keys);
}

const Group& World::add(std::string name, std::vector<int> ranks, std::shared_ptr<Transport> transport,
                        const c10::intrusive_ptr<c10d::Store>& keys) {
  std::shared_ptr<MeetingPoint> meeting;
  if (keys) meeting = make_meeting_point(keys, transport->rank(), transport->size(), silence_s_);
  Group group(std::move(name), device_, transport, page_, std::move(meeting), ledger_, ranks);
  const base::Lock lock(connection_->mutex);
  return connection_->groups.emplace_back(Member{std::move(ranks), std::move(transport), std::move(group)}).group;
}

World::~World() {
  connection_->stopping = true;
  connection_->watcher.join();
  if (std::uncaught_exceptions() > 0) {
    // This rank is failing: goodbyes would wait for ranks that wait for it. The process ends next and takes the connections along.
    [[maybe_unused]] auto* abandoned = connection_.release();
    return;
  }
  // Rank 0 serves the store: it leaves last, or the others' goodbyes fail.
  try {
    {
      const base::Lock lock(connection_->mutex);
      for (auto member = connection_->groups.rbegin(); member != connection_->groups.rend(); ++member) member->transport->shut_down();
    }
    if (connection_->store) {
      connection_->store->add("left", 1);
      if (place_.rank == 0) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (connection_->store->add("left", 0) < place_.world_size && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      }
    }
  } catch (const std::exception& error) {
    base::log_info("while leaving the world: {}", error.what());
  }
}

}  // namespace lockstep::comm
