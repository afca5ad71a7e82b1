// Connects this process to all others: place, store, backend, the group of everyone and the thread that watches it.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
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
  if (options.place.world_size == 1) return config::Backend::single;
  if (asked == config::Backend::single) {
    throw base::usage_error("comm", "--sync-backend single is for one rank, but there are {}. Use auto, nccl, gloo or cpu, or --ranks 1.",
                            options.place.world_size);
  }
  if (asked == config::Backend::nccl && !on_gpu) {
    throw base::usage_error("comm", "--sync-backend nccl needs GPUs, but this rank is on {}. Use gloo, or leave it out.",
                            options.device.str());
  }
  if (asked != config::Backend::automatic) return asked;
  return on_gpu || options.nccl ? config::Backend::nccl : config::Backend::gloo;
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
  std::shared_ptr<Transport> transport;
  std::atomic<bool> stopping = false;
  std::mutex mutex;  // guards what follows
  std::function<void()> look;
  std::thread watcher;
};

namespace {

// NCCL's start waits for every rank: one on which it fails must be heard by the others, or they wait for it for ever.
std::shared_ptr<Transport> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, const World::Options& options, std::string& failure) {
  const auto without_room = [](std::string text) { return text.starts_with("[comm] ") ? text.substr(7) : text; };
  const auto connect = [store, options] {
    if (options.nccl) return options.nccl();
    return make_backend_transport(make_nccl(store, options.place, options.timeout_s, options.device));
  };
  // What can be known before is: nobody is left waiting within the library then.
  const auto look = [options]() -> std::shared_ptr<Transport> {
    if (!options.nccl && !has_nccl()) make_nccl({}, options.place, options.timeout_s, options.device);
    return make_single_transport();
  };
  std::shared_ptr<Transport> transport = connect_together(store, options.place, options.timeout_s, "NCCL's library", look, failure);
  if (transport) transport = connect_together(store, options.place, options.timeout_s, "NCCL", connect, failure);
  failure = without_room(failure);
  return transport;
}

}  // namespace

void World::watch(std::function<void()> look) {
  const std::lock_guard lock(connection_->mutex);
  connection_->look = std::move(look);
}

World::World(const Options& options, std::shared_ptr<record::PageWriter> page)
    : place_(options.place),
      backend_(choose(options.backend, options)),
      device_(options.device),
      connection_(std::make_unique<Connection>()) {
  if (backend_ == config::Backend::single) {
    connection_->transport = make_single_transport();
  } else {
    connection_->store = open_store(place_, options.timeout_s);
    if (backend_ == config::Backend::nccl) {
      std::string failure;
      connection_->transport = connect_nccl(connection_->store, options, failure);
      if (!connection_->transport && options.backend == config::Backend::nccl) throw base::machine_error("comm", "{}", failure);
      if (!connection_->transport) {
        fallback_ = fmt::format("{} All ranks fall back to --sync-backend cpu (through host memory).", failure);
        backend_ = config::Backend::cpu;
      }
    }
    if (!connection_->transport) {
      auto gloo = make_backend_transport(make_gloo(connection_->store, place_, options.timeout_s));
      // Gloo's own device path copies through the host as well, but blocks the stream while it does.
      connection_->transport = make_queued_transport(make_rank_order_transport(std::move(gloo)), device_);
    }
  }
  std::shared_ptr<MeetingPoint> meeting;
  if (connection_->store)
    meeting = make_meeting_point(connection_->store, place_.rank, place_.world_size, std::max(options.silence_s, options.timeout_s));
  everyone_.emplace("world", device_, connection_->transport, std::move(page), std::move(meeting));
  connection_->watcher = std::thread([this] {
    while (!connection_->stopping) {
      everyone_->mark_finished();
      {
        const std::lock_guard lock(connection_->mutex);
        if (connection_->look) connection_->look();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
}

World::~World() {
  connection_->stopping = true;
  connection_->watcher.join();
  if (std::uncaught_exceptions() > 0) {
    // This rank is failing: goodbyes would wait for ranks that wait for it. The process ends next and takes the connection along.
    [[maybe_unused]] auto* abandoned = connection_.release();
    return;
  }
  // Rank 0 serves the store: it leaves last, or the others' goodbyes fail.
  try {
    connection_->transport->shut_down();
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
