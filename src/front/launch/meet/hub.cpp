// Machine 0: the others come here, and its word counts.
#include "front/launch/meet/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/descriptor.h"
#include "base/hash/sha256.h"
#include "front/launch/ports.h"

namespace lockstep::launch::meet {
namespace {

namespace fs = std::filesystem;

// Where machines differ the rest gets this long to come, so that everybody hears why it ended.
constexpr double time_to_hear_s = 10;
constexpr double time_to_leave_s = 5;

// On machine 0 its own name is often an address that nobody else can reach (Debian: 127.0.1.1). Then, and where the address belongs to
// a router before us, every interface is listened on: who comes has to prove itself anyway.
Socket listen_for_machines(const Rendezvous& rendezvous) {
  Address address = every_interface(rendezvous.master_port);
  for (const Address& candidate : resolve(rendezvous.master_addr, rendezvous.master_port, rendezvous.address_setting)) {
    if (candidate.is_loopback() ? !rendezvous.on_one_host : !candidate.is_of_this_machine()) continue;
    address = candidate;
    break;
  }
  Socket socket = listen_at(address, 128);
  if (socket.open()) return socket;
  const std::string reason = std::strerror(errno);
  const std::string holder = who_listens(rendezvous.master_port);
  throw base::machine_error("launch", "machine 0 cannot listen at {}: {}{}. Choose another port with --port, the same on all machines.",
                            address.text(), reason, holder.empty() ? "" : fmt::format(" (held by {})", holder));
}

void write_private(const fs::path& path, const std::string& text) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  fs::remove(path, ignored);
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.open()) throw base::machine_error("launch", "cannot write {}: {}.", path.string(), std::strerror(errno));
  if (::write(file.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw base::machine_error("launch", "cannot write {}: {}.", path.string(), std::strerror(errno));
}

}  // namespace

// A file of a name nobody could know, in each folder that all machines must share, for as long as they look for it.
class Hub::Marks {
 public:
  explicit Marks(const std::vector<SharedFolder>& folders) : name_(".meeting-" + base::to_hex(base::random_bytes(8))) {
    for (const SharedFolder& folder : folders) {
      write_private(fs::path(folder.path) / name_, "machines of one run look for this file\n");
      files_.push_back(fs::path(folder.path) / name_);
    }
  }
  ~Marks() {
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::vector<fs::path> files_;
};

Hub::Hub(Rendezvous rendezvous)
    : rendezvous_(std::move(rendezvous)),
      secret_(rendezvous_.secret.empty() ? fresh_secret() : rendezvous_.secret),
      links_(secret_, silence_allowed(rendezvous_)),
      job_(base::to_hex(base::random_bytes(8))) {
  Socket listener = listen_for_machines(rendezvous_);
  if (!rendezvous_.secret_file.empty()) {
    write_private(rendezvous_.secret_file, secret_);
    secret_in_use_ = base::FileLock::take(rendezvous_.secret_file);  // whoever finds it unlocked may sweep it up
  }
  links_.listen(std::move(listener));
}

Hub::~Hub() {
  std::error_code ignored;
  if (!rendezvous_.secret_file.empty()) fs::remove(rendezvous_.secret_file, ignored);
}

Gathered Hub::gather(const Facts& mine, int restart, bool resume, Observer& observer, const StopWish& stop) {
  const Marks marks(mine.folders);
  asked_with_ = marks.name();
  here_ = {{0, mine}};
  link_of_.clear();
  standings_.clear();
  for (const int link : joined_) links_.send(link, static_cast<std::uint8_t>(Say::welcome), Welcome{asked_with_}.pack());
  Sparingly sparingly;
  const std::int64_t begun = base::now_ns();
  std::int64_t differed_ns = 0;
  std::optional<Refusal> refusal;
  for (;;) {
    if (stop.wait(look_every_s) != 0) {
      conclude({.outcome = {.kind = Outcome::Kind::stopped}});
      return {};
    }
    const std::size_t before = here_.size();
    for (const Links::Event& event : links_.take()) meet(event, observer);
    if (here_.size() != before) refusal = find_refusal(rendezvous_, here_, restart > 0);
    const bool all = static_cast<int>(here_.size()) == rendezvous_.nodes;
    if (refusal && differed_ns == 0) differed_ns = base::now_ns();
    if (refusal && (all || base::seconds_since(differed_ns) > time_to_hear_s)) refuse_all(*refusal);
    if (all && !refusal) return {.agreement = settle(restart, resume)};
    if (base::seconds_since(begun) > rendezvous_.timeout_s) refuse_all(nobody_came());
    if (base::seconds_since(begun) < silence_before_words_s) continue;
    const std::string line = who_is_missing(rendezvous_, here_);
    if (!sparingly.worth_saying(line)) continue;
    observer.say(line + ".");
    for (const auto& [node, link] : link_of_) links_.send(link, static_cast<std::uint8_t>(Say::waiting), line);
  }
}

void Hub::meet(const Links::Event& event, Observer& observer) {
  switch (event.kind) {
    case Links::Event::Kind::joined:
      joined_.insert(event.link);
      links_.send(event.link, static_cast<std::uint8_t>(Say::welcome), Welcome{asked_with_}.pack());
      break;
    case Links::Event::Kind::frame:
      if (event.frame.kind != static_cast<std::uint8_t>(Say::facts)) break;
      if (const auto refusal = admit(event.link, event.frame.body)) {
        const std::string line = fmt::format("{} was turned away and told: {}", links_.peer_host(event.link), refusal->text);
        if (is_news(line)) observer.say(line);  // or a person at machine 0 would wonder why it does not come
        refuse_one(event.link, *refusal);
      }
      break;
    case Links::Event::Kind::left: {
      joined_.erase(event.link);
      if (const auto node = node_of(event.link)) {
        observer.say(fmt::format("{} has left: {}.", name_of(rendezvous_, *node, here_.at(*node).host), event.text));
        here_.erase(*node);
        link_of_.erase(*node);
      }
      break;
    }
    case Links::Event::Kind::refused: tell_of_stranger(event, observer); break;
  }
}

// Why a machine cannot be one of the run's; nothing where it is from here on.
std::optional<Refusal> Hub::admit(int link, const std::string& body) {
  const auto refused = [](std::string text) { return Refusal{static_cast<int>(base::ExitCode::usage), std::move(text)}; };
  Facts facts;
  try {
    facts = Facts::unpack(body);
  } catch (const Malformed&) {
    return refused(
        "this machine runs another version of lockstep than machine 0. Run the same build on all machines: `lockstep --version`.");
  }
  if (facts.answers != asked_with_) return std::nullopt;  // an earlier question: this one's answer is on its way
  if (facts.nodes != rendezvous_.nodes || facts.node < 1 || facts.node >= rendezvous_.nodes) {
    return refused(
        fmt::format("this machine is number {} of {}, but machine 0 ({}) waits for {}. Give all of them the same --nnodes, and each a "
                    "--node-rank of its own from 0 to {}.",
                    facts.node, facts.nodes, here_.at(0).host, rendezvous_.nodes, rendezvous_.nodes - 1));
  }
  if (has_come_back(facts)) {
    forget_link(facts.node);
    here_.erase(facts.node);
  }
  if (const auto taken = here_.find(facts.node); taken != here_.end()) {
    return refused(fmt::format("{} is here already, from {}. Every machine needs a --node-rank of its own.",
                               name_of(rendezvous_, facts.node, taken->second.host), links_.peer_host(link_of_.at(facts.node))));
  }
  link_of_[facts.node] = link;
  here_[facts.node] = std::move(facts);
  return std::nullopt;
}

// Its side has noticed before ours that the connection broke.
bool Hub::has_come_back(const Facts& facts) const {
  const auto known = here_.find(facts.node);
  return facts.node > 0 && known != here_.end() && known->second.launcher == facts.launcher;
}

void Hub::forget_link(int node) {
  const auto old = link_of_.find(node);
  if (old == link_of_.end()) return;
  links_.drop(old->second);
  joined_.erase(old->second);
  link_of_.erase(old);
}

// Without the secret nobody takes a place, but a person may wonder why a machine does not come.
void Hub::tell_of_stranger(const Links::Event& event, Observer& observer) {
  if (event.why != ChannelError::Why::refused || !is_news(event.text)) return;
  observer.say(fmt::format("{} came without this run's secret and was turned away.", event.text));
}

bool Hub::is_news(const std::string& words) { return strangers_.insert(words).second && strangers_.size() <= 8; }

void Hub::refuse_one(int link, const Refusal& refusal) {
  links_.send(link, static_cast<std::uint8_t>(Say::refused), refusal.pack());
  links_.drop(link);
  joined_.erase(link);
}

void Hub::refuse_all(const Refusal& refusal) {
  for (const int link : joined_) links_.send(link, static_cast<std::uint8_t>(Say::refused), refusal.pack());
  wait_until_they_leave();
  throw base::UserError(static_cast<base::ExitCode>(refusal.exit_code), "launch", refusal.text);
}

Refusal Hub::nobody_came() const {
  return {
      static_cast<int>(base::ExitCode::machine),
      fmt::format("after {:.0f} s (parallel.timeout_s) {}. Start it there with the same command and its own --node-rank, or check that it "
                  "reaches {}:{}.",
                  rendezvous_.timeout_s, who_is_missing(rendezvous_, here_), rendezvous_.master_addr, rendezvous_.master_port)};
}

Agreement Hub::settle(int restart, bool resume) {
  std::string bind_host = "127.0.0.1";
  for (const auto& [node, link] : link_of_) {
    if (const std::string host = links_.local_host(link); !host.starts_with("127.") && host != "::1") bind_host = host;
  }
  Agreement mine;
  for (const auto& [node, facts] : here_) {
    Agreement agreement = agree(here_, node);
    agreement.job = job_;
    agreement.restart = restart;
    agreement.resume = resume;
    agreement.bind_host = bind_host;
    if (node == 0)
      mine = agreement;
    else
      links_.send(link_of_.at(node), static_cast<std::uint8_t>(Say::agreed), agreement.pack());
  }
  return mine;
}

int Hub::way_to_store(int port) {
  links_.end_streams_at(port);
  return port;
}

Peers::News Hub::exchange(const Standing&) {
  News news;
  for (const Links::Event& event : links_.take()) {
    const auto node = node_of(event.link);
    if (event.kind == Links::Event::Kind::joined) welcome_later(event.link);
    if (event.kind == Links::Event::Kind::left) joined_.erase(event.link);
    const bool is_facts = event.kind == Links::Event::Kind::frame && event.frame.kind == static_cast<std::uint8_t>(Say::facts);
    if (!node && is_facts) know_again(event.link, event.frame.body);
    if (!node) continue;
    if (event.kind == Links::Event::Kind::left) {
      lost_ = fmt::format("{} is gone: {}", name_of(rendezvous_, *node, here_.at(*node).host), event.text);
      link_of_.erase(*node);
    } else if (event.kind == Links::Event::Kind::frame) {
      hear(*node, event.frame, news);
    }
  }
  news.lost = lost_;
  news.others.all_ended = true;
  for (const auto& [node, facts] : here_) {
    if (node == 0) continue;
    const auto standing = standings_.find(node);
    news.others.all_ended = news.others.all_ended && standing != standings_.end() && standing->second.all_ended;
    if (standing == standings_.end()) continue;
    const Standing& theirs = standing->second;
    news.others.pages.insert(news.others.pages.end(), theirs.pages.begin(), theirs.pages.end());
    news.others.ends.insert(news.others.ends.end(), theirs.ends.begin(), theirs.ends.end());
  }
  return news;
}

// A machine that comes while the run is under way: one that was lost and is back, for the next meeting, or one too many. Where none is
// missing it has to say who it is.
void Hub::welcome_later(int link) {
  joined_.insert(link);
  if (static_cast<int>(link_of_.size()) + 1 < rendezvous_.nodes) return;
  links_.send(link, static_cast<std::uint8_t>(Say::welcome), Welcome{}.pack());
}

void Hub::know_again(int link, const std::string& body) {
  try {
    const Facts facts = Facts::unpack(body);
    if (has_come_back(facts)) {
      lost_ = fmt::format("{} has lost its connection and made a new one", name_of(rendezvous_, facts.node, facts.host));
      return forget_link(facts.node);
    }
  } catch (const Malformed&) {
    // Another version: it is one too many, whatever it says.
  }
  refuse_one(link, {static_cast<int>(base::ExitCode::usage),
                    fmt::format("the run at {}:{} is under way, and all its {} are here already.", rendezvous_.master_addr,
                                rendezvous_.master_port, rendezvous_.ranks_are_machines ? "ranks" : "machines")});
}

void Hub::hear(int node, const Frame& frame, News& news) {
  try {
    if (frame.kind == static_cast<std::uint8_t>(Say::standing)) {
      Standing standing = unpack_standing(frame.body, base::now_ns());
      for (RankEnd& rank : standing.ends) {
        rank.elsewhere = rank.told = true;
        const std::string& host = here_.at(node).host;
        if (!rendezvous_.ranks_are_machines)
          rank.machine = name_of(rendezvous_, node, host);
        else if (host != here_.at(0).host)
          rank.machine = host;
      }
      standings_[node] = std::move(standing);
    } else if (frame.kind == static_cast<std::uint8_t>(Say::stop)) {
      const Stop stop = Stop::unpack(frame.body);
      news.stop_signal = stop.signal;
      news.at_once = stop.at_once;
      pass_on(stop, node);
    }
  } catch (const Malformed&) {
    // Of a launcher of our own build: cannot be. It says nothing, and its silence is noticed.
  }
}

void Hub::wish_to_stop(int signal, bool at_once) { pass_on({signal, at_once}, 0); }

void Hub::pass_on(const Stop& stop, int from) {
  for (const auto& [node, link] : link_of_) {
    if (node != from) links_.send(link, static_cast<std::uint8_t>(Say::stop), stop.pack());
  }
}

void Hub::conclude(const Ending& ending) {
  for (const int link : joined_) links_.send(link, static_cast<std::uint8_t>(Say::end), ending.pack());
  lost_.clear();
  if (!ending.restarts) wait_until_they_leave();
}

// Closing a connection with words still on their way could lose them.
void Hub::wait_until_they_leave() {
  const std::int64_t begun = base::now_ns();
  while (!joined_.empty() && base::seconds_since(begun) < time_to_leave_s) {
    for (const Links::Event& event : links_.take()) {
      if (event.kind == Links::Event::Kind::left) joined_.erase(event.link);
    }
    ::usleep(2000);
  }
}

std::vector<Facts> Hub::everyone() const {
  std::vector<Facts> all;
  for (const auto& [node, facts] : here_) all.push_back(facts);
  return all;
}

std::optional<int> Hub::node_of(int link) const {
  const auto found = std::find_if(link_of_.begin(), link_of_.end(), [&](const auto& entry) { return entry.second == link; });
  return found == link_of_.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace lockstep::launch::meet
