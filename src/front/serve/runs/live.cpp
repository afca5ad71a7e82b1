// A look at the disk five times a second, told to all who listen.
#include "front/serve/runs/live.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "journal/run_folder.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto look_every = std::chrono::milliseconds(200);
constexpr double list_every_s = 1, comment_every_s = 15;

}  // namespace

Live::Live(const Folders& folders, Runs& runs, Starts& starts, Queue& queue)
    : folders_(folders), runs_(runs), starts_(starts), queue_(queue) {
  thread_ = base::quiet_thread([this] { watch(); });
}

Live::~Live() {
  {
    base::Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<http::Stream> Live::listen(const std::string& run) {
  auto stream = std::make_shared<http::Stream>();
  base::Lock lock(mutex_);
  if (!run.empty() && !tails_.contains(run)) {
    auto tail = std::make_unique<journal::Tail>(journal::RunFolder{folders_.output() / run}.metrics());
    tail->skip_to_end();
    tails_.emplace(run, std::move(tail));
  }
  stream->comment();
  listeners_.push_back({stream, run});
  changed_.notify_all();
  return stream;
}

void Live::watch() {
  std::int64_t listed_ns = 0, commented_ns = base::now_ns();
  for (;;) {
    {
      base::Lock lock(mutex_);
      const bool waits = listeners_.empty();
      if (waits) told_.clear();
      changed_.wait_for(lock, waits ? std::chrono::milliseconds(1000) : look_every,
                        [&]() LOCKSTEP_REQUIRES(mutex_) { return closing_ || (waits && !listeners_.empty()); });
      if (closing_) return;
    }
    starts_.reap();
    tell_lines();
    if (base::seconds_since(listed_ns) >= list_every_s) {
      if (!queue_.names().empty()) queue_.advance(runs_.some_train());
      tell_runs();
      listed_ns = base::now_ns();
    }
    if (base::seconds_since(commented_ns) >= comment_every_s) {
      base::Lock lock(mutex_);
      for (const Listener& listener : listeners_) listener.stream->comment();
      commented_ns = base::now_ns();
    }
  }
}

void Live::tell_lines() {
  base::Lock lock(mutex_);
  std::erase_if(listeners_, [](const Listener& one) { return !one.stream->open(); });
  std::set<std::string> wanted;
  for (const Listener& listener : listeners_) wanted.insert(listener.run);
  std::erase_if(tails_, [&](const auto& one) { return !wanted.contains(one.first); });
  for (auto& [run, tail] : tails_) {
    const journal::Tail::Update update = tail->poll();
    if (!update.replaced && update.lines.empty()) continue;
    Json lines = Json::array();
    for (const std::string& line : update.lines) {
      if (auto json = base::json_if_any(line)) lines.push_back(std::move(*json));
    }
    const std::string data = lines.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (const Listener& listener : listeners_) {
      if (listener.run == run) listener.stream->push(update.replaced ? "reset" : "lines", update.replaced ? "[]" : data);
    }
  }
}

void Live::tell_runs() {
  {
    base::Lock lock(mutex_);
    if (listeners_.empty()) return;
  }
  const std::string list = runs_.list().dump(-1, ' ', false, Json::error_handler_t::replace);
  base::Lock lock(mutex_);
  for (Listener& listener : listeners_) {
    if (list != told_ || !listener.greeted) listener.stream->push("runs", list);
    listener.greeted = true;
  }
  told_ = list;
}

}  // namespace lockstep::serve
