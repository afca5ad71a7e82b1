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
constexpr double list_every_s = 1, load_every_s = 1, comment_every_s = 15;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

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
  for (;;) {
    bool waits = false;
    {
      base::Lock lock(mutex_);
      waits = listeners_.empty();
      if (waits) told_.clear(), order_.clear();
      changed_.wait_for(lock, waits ? std::chrono::milliseconds(1000) : look_every,
                        [&]() LOCKSTEP_REQUIRES(mutex_) { return closing_ || (waits && !listeners_.empty()); });
      if (closing_) return;
    }
    if (waits) load_.close();
    try {
      look();
    } catch (const std::exception&) {  // a file that went away while it was read, a full disk: the next look may fare better
    }
  }
}

void Live::look() {
  starts_.reap();
  tell_lines();
  if (base::seconds_since(listed_ns_) >= list_every_s) {
    listed_ns_ = base::now_ns();
    if (!queue_.names().empty()) queue_.advance(runs_.some_train());
    tell_runs();
  }
  if (base::seconds_since(loaded_ns_) >= load_every_s) {
    loaded_ns_ = base::now_ns();
    tell_gpus();
  }
  if (base::seconds_since(commented_ns_) >= comment_every_s) {
    commented_ns_ = base::now_ns();
    base::Lock lock(mutex_);
    for (const Listener& listener : listeners_) listener.stream->comment();
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
    const std::string data = dump(lines);
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
  const Json list = runs_.list();
  Json changed = {{"cards", Json::array()}};
  std::map<std::string, std::string> cards;
  std::vector<std::string> order;
  for (const Json& card : list) {
    const std::string& name = order.emplace_back(card["name"]);
    std::string& text = cards[name] = dump(card);
    if (const auto before = told_.find(name); before == told_.end() || before->second != text) changed["cards"].push_back(card);
  }
  if (order != order_) changed["names"] = order;
  const bool is_news = !changed["cards"].empty() || changed.contains("names");
  const std::string news = is_news ? dump(changed) : "";
  told_ = std::move(cards);
  order_ = std::move(order);

  base::Lock lock(mutex_);
  for (Listener& listener : listeners_) {
    if (!listener.greeted)
      listener.stream->push("runs", dump(list));
    else if (is_news)
      listener.stream->push("changed", news);
    listener.greeted = true;
  }
}

void Live::tell_gpus() {
  {
    base::Lock lock(mutex_);
    if (listeners_.empty()) return;
  }
  const Json load = load_.read();
  if (load.empty()) return;
  const std::string text = dump(load);
  base::Lock lock(mutex_);
  for (Listener& listener : listeners_) {
    if (!listener.knows_gpus || text != load_told_) listener.stream->push("gpus", text);
    listener.knows_gpus = true;
  }
  load_told_ = text;
}

}  // namespace lockstep::serve
