// A look at the disk five times a second, told to all who listen.
#include "front/serve/runs/live.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/hash/fresh.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "base/text.h"
#include "front/serve/answers.h"
#include "journal/run_folder.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto look_every = std::chrono::milliseconds(200);
constexpr double list_every_s = 1, load_every_s = 1, comment_every_s = 15;

}  // namespace

Live::Live(const Folders& folders, Runs& runs, Starts& starts, Queue& queue)
    : folders_(folders), runs_(runs), starts_(starts), queue_(queue), id_(base::fresh_id(2)) {
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

std::string Live::mark(const RunList& list) const { return fmt::format("{}-{}", id_, list.version); }

std::shared_ptr<http::Stream> Live::listen(const std::string& run, const std::string& known) {
  auto stream = std::make_shared<http::Stream>();
  base::Lock lock(mutex_);
  if (!run.empty() && !tails_.contains(run)) {
    auto tail = std::make_unique<journal::Tail>(journal::RunFolder{folders_.output() / run}.metrics());
    tail->skip_to_end();
    tails_.emplace(run, std::move(tail));
  }
  stream->comment();
  listeners_.push_back({stream, run, known});
  changed_.notify_all();
  return stream;
}

void Live::watch() {
  for (;;) {
    bool waits = false;
    {
      base::Lock lock(mutex_);
      waits = listeners_.empty();
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
    const std::string data = to_text(lines);
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
  const std::shared_ptr<const RunList> list = runs_.list();
  const std::string ours = id_ + "-";
  std::size_t all_bytes = 0;
  for (const auto& card : list->cards) all_bytes += card->text.size() + 1;
  std::map<std::int64_t, std::string> news;  // by the version that it is newer than
  const auto newer_than = [&](std::int64_t version) -> const std::string& {
    const auto [found, fresh] = news.try_emplace(version);
    if (std::string text; fresh && !(text = list->since(version)).empty())
      found->second = fmt::format(R"({{"mark":"{}",{})", mark(*list), std::string_view(text).substr(1));
    return found->second;
  };
  const auto fits = [](std::size_t bytes) { return 2 * bytes < http::Stream::most_waiting; };  // or the stream would end with it
  base::Lock lock(mutex_);
  for (Listener& listener : listeners_) {
    if (!listener.version && listener.known.starts_with(ours))
      listener.version = base::parse_integer(listener.known.substr(ours.size())).value_or(0);
    if (listener.version) {
      const std::string& text = newer_than(*listener.version);
      if (fits(text.size()) && !text.empty()) listener.stream->push("changed", text);
      if (!fits(text.size())) listener.stream->push("stale", "{}");
    } else if (listener.known.empty() && fits(all_bytes)) {
      listener.stream->push("runs", list->text());
    } else {
      listener.stream->push("stale", "{}");
    }
    listener.version = list->version;
  }
}

void Live::tell_gpus() {
  {
    base::Lock lock(mutex_);
    if (listeners_.empty()) return;
  }
  const Json load = load_.read();
  if (load.empty()) return;
  const std::string text = to_text(load);
  base::Lock lock(mutex_);
  for (Listener& listener : listeners_) {
    if (!listener.knows_gpus || text != load_told_) listener.stream->push("gpus", text);
    listener.knows_gpus = true;
  }
  load_told_ = text;
}

}  // namespace lockstep::serve
