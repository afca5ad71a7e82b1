// The list of runs, kept from one look to the next: a run that has ended is read again only where its folder looks different.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file/descriptor.h"
#include "front/serve/answers.h"
#include "front/serve/runs/runs.h"
#include "journal/run_folder.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t second_ns = 1'000'000'000;
// Two changes within a tick of the file system's clock look like one, so what has just changed is read once more.
constexpr std::int64_t tick_ns = 2 * second_ns;
// Counting a run's bytes means to look at each of its files. For so long at a time; longer for those that never were.
constexpr double bytes_hold_s = 20, counting_s = 0.02, first_counting_s = 0.3;

std::int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

bool trains(const std::string& state) { return state == "running" || state == "starting"; }

void append(std::string& list, const std::string& one) {
  if (list.back() != '[') list += ',';
  list += one;
}

}  // namespace

std::string RunList::text() const {
  std::string all = "[";
  for (const auto& card : cards) append(all, card->text);
  return all + "]";
}

std::string RunList::since(std::int64_t before) const {
  if (version <= before) return "";
  std::string news = "{\"cards\":[";
  for (const auto& card : cards) {
    if (card->version > before) append(news, card->text);
  }
  news += "]";
  if (ordered > before) {
    news += ",\"names\":[";
    for (const auto& card : cards) append(news, to_text(card->name));
    news += "]";
  }
  return news + "}";
}

std::int64_t Runs::Looks::newest_ns() const { return std::max({folder.changed_ns, metrics.changed_ns, start.changed_ns}); }

Runs::Look Runs::look(int folder, const std::string& path) {
  struct stat file = {};
  if (::fstatat(folder, path.c_str(), &file, 0) != 0) return {};
  return {.inode = file.st_ino,
          .bytes = static_cast<std::uint64_t>(file.st_size),
          .changed_ns = file.st_mtim.tv_sec * second_ns + file.st_mtim.tv_nsec};
}

// Two questions to the disk for each run, and nothing is opened.
std::map<std::string, Runs::Looks> Runs::look_at_all() const {
  std::map<std::string, Looks> found;
  const base::Descriptor output(::open(folders_.output().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folders_.output(), error)) {
    const std::string name = entry.path().filename().string();
    std::error_code here;
    if (!Folders::is_name(name) || !entry.is_directory(here) || (entry.is_symlink(here) && !folders_.allows(entry.path()))) continue;
    Looks looks{.folder = look(output.number(), name), .metrics = look(output.number(), name + "/metrics.jsonl"), .start = {}};
    if (looks.metrics.changed_ns >= 0 || look(output.number(), name + "/config.yaml").changed_ns >= 0) found.emplace(name, looks);
  }
  // With those that have not come to a folder of their own.
  for (const std::string& name : starts_.names()) {
    if (Folders::is_name(name)) found[name].start = look(AT_FDCWD, (folders_.own() / (name + ".start")).string());
  }
  return found;
}

// A run as it looks now.
void Runs::renew(const std::string& name, const Looks& looks, const std::vector<std::string>& waiting, Kept& kept) {
  Json json = card(name, waiting, kept.bytes);
  const std::string reason = json["reason"];
  json["reason"] = reason.substr(0, reason.find('\n'));  // a whole report stands on the run's own page
  std::string text = to_text(json);
  const std::string state = json["state"];
  const bool ended = !trains(state) && state != "waiting";
  // A run that trains keeps its place while its files grow.
  if (ended || !kept.card || !trains(kept.card->state)) kept.placed_ns = looks.newest_ns();
  kept.looks = looks;
  kept.settled = ended && wall_ns() - looks.newest_ns() > tick_ns;
  if (!kept.card || kept.card->text != text) kept.card = std::make_shared<Card>(Card{name, state, std::move(text), version_ + 1});
}

// Of all in turns, as far as time allows.
void Runs::count_bytes(const std::vector<std::string>& waiting) {
  const std::int64_t begun = base::now_ns();
  const auto& cards = listed_->cards;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const std::string& name = cards[(counted_ + i) % cards.size()]->name;
    const auto found = kept_.find(name);
    if (found == kept_.end()) continue;
    Kept& kept = found->second;
    if (kept.bytes && base::seconds_since(kept.counted_ns) < bytes_hold_s) continue;
    if (base::seconds_since(begun) > (kept.bytes ? counting_s : first_counting_s)) {
      counted_ = (counted_ + i) % cards.size();
      return;
    }
    const std::uint64_t before = std::exchange(kept.bytes, bytes_on_disk(name)).value_or(0);
    kept.counted_ns = base::now_ns();
    if (kept.bytes != before) renew(name, kept.looks, waiting, kept);
  }
  counted_ = 0;
}

// What is kept, in order; the list before this one where it says the same.
std::shared_ptr<const RunList> Runs::arranged() {
  struct Place {
    int kind;
    std::int64_t placed_ns;
    const std::shared_ptr<const Card>* card;
  };
  std::vector<Place> places;
  bool changed = kept_.size() != listed_->cards.size();
  for (const auto& [name, kept] : kept_) {
    places.push_back({kept.card->state == "waiting" ? 0 : trains(kept.card->state) ? 1 : 2, kept.placed_ns, &kept.card});
    changed = changed || kept.card->version > version_;
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return std::pair(a.kind, -a.placed_ns) < std::pair(b.kind, -b.placed_ns); });
  auto made = std::make_shared<RunList>();
  for (const Place& place : places) made->cards.push_back(*place.card);
  const auto name_of = [](const std::shared_ptr<const Card>& card) -> const std::string& { return card->name; };
  const bool other_order = !std::ranges::equal(made->cards, listed_->cards, {}, name_of, name_of);
  if (!changed && !other_order) return listed_;
  made->version = ++version_;
  made->ordered = other_order ? version_ : listed_->ordered;
  return made;
}

std::shared_ptr<const RunList> Runs::list() {
  base::Lock lock(listing_);
  const std::map<std::string, Looks> found = look_at_all();
  const std::vector<std::string> waiting = queue_.names();
  const auto waits = [&](const std::string& name) { return std::find(waiting.begin(), waiting.end(), name) != waiting.end(); };
  std::erase_if(kept_, [&](const auto& one) { return !found.contains(one.first) && !waits(one.first); });
  for (const auto& [name, looks] : found) {
    Kept& kept = kept_[name];
    if (!kept.settled || kept.looks != looks || waits(name)) renew(name, looks, waiting, kept);
  }
  for (const std::string& name : waiting) {  // most have no folder yet
    if (Folders::is_name(name) && !found.contains(name)) renew(name, {}, waiting, kept_[name]);
  }
  listed_ = arranged();
  count_bytes(waiting);
  return listed_ = arranged();
}

bool Runs::some_train() {
  const auto all = list();
  return std::any_of(all->cards.begin(), all->cards.end(), [](const auto& card) { return trains(card->state); });
}

}  // namespace lockstep::serve
