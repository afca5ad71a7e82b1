// Connects to machine 0, answers its questions, and then tells it how things stand.
#include "front/launch/meet/spoke.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/descriptor.h"
#include "base/hash/sha256.h"
#include "base/text.h"
#include "front/launch/meet/hub.h"
#include "front/launch/meet/pack.h"

namespace lockstep::launch::meet {
namespace {

namespace fs = std::filesystem;

constexpr double connect_within_s = 3;
constexpr double try_again_after_s = 0.25;
constexpr double patience_with_machine_0_s = 5;  // beyond the deadline: it has the better words
constexpr double tell_every_s = 0.5;
constexpr double time_to_see_file_s = 5;  // a network file system may show it late

bool sees(const fs::path& file) {
  const std::int64_t begun = base::now_ns();
  for (;;) {
    std::error_code ignored;
    if (fs::exists(file, ignored)) return true;
    if (!fs::exists(file.parent_path(), ignored) || base::seconds_since(begun) > time_to_see_file_s) return false;
    ::usleep(50'000);
  }
}

// Of a file that only this user can have written.
std::string read_secret(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.open()) return {};
  struct stat status {};
  char text[256];
  const bool ours = ::fstat(file.number(), &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
  const ssize_t size = ours ? ::read(file.number(), text, sizeof text) : 0;
  return size > 0 ? base::trim({text, static_cast<std::size_t>(size)}) : "";
}

}  // namespace

double silence_allowed(const Rendezvous& rendezvous) { return std::clamp(rendezvous.timeout_s, 5.0, 60.0); }

Spoke::Spoke(Rendezvous rendezvous)
    : rendezvous_(std::move(rendezvous)),
      launcher_(base::to_hex(base::random_bytes(8))),
      addresses_(resolve(rendezvous_.master_addr, rendezvous_.master_port, rendezvous_.address_setting)) {}

std::string Spoke::where() const { return fmt::format("{}:{}", rendezvous_.master_addr, rendezvous_.master_port); }

void Spoke::turned_away() const {
  throw base::usage_error(
      "launch",
      "machine 0 at {} does not know this machine's LOCKSTEP_SECRET: it belongs to another run, or to an earlier start of "
      "this one. Machine 0 prints the line that starts this machine, with its secret.",
      where());
}

void Spoke::try_to_connect() {
  if (tried_ns_ != 0 && base::seconds_since(tried_ns_) < try_again_after_s) return;
  tried_ns_ = base::now_ns();
  std::string secret = rendezvous_.secret;
  if (secret.empty()) {
    secret = read_secret(rendezvous_.secret_file);
    last_error_ = fmt::format("no secret in {} yet", rendezvous_.secret_file.string());
    if (secret.empty()) return;
  }
  Socket socket = connect_within(addresses_[next_address_++ % addresses_.size()], connect_within_s, last_error_);
  if (!socket.open()) return;
  links_ = std::make_unique<Links>(secret, silence_allowed(rendezvous_));
  link_ = links_->add(std::move(socket));
  last_error_ = "it does not answer";
}

void Spoke::hear_of_connection(const Links::Event& event) {
  if (event.kind == Links::Event::Kind::joined) joined_ = true;
  if (event.kind != Links::Event::Kind::left) return;
  link_ = -1;
  joined_ = false;
  last_error_ = event.text;
  if (event.why == ChannelError::Why::other_program) {
    throw base::machine_error(
        "launch",
        "what listens at {} is not a lockstep launcher of this version. Check {} and --port, and that all machines run "
        "the same build.",
        where(), rendezvous_.address_setting);
  }
  // A secret found in a file may be an earlier start's: the next look finds the new one.
  if (event.why == ChannelError::Why::refused && !rendezvous_.secret.empty()) turned_away();
}

Gathered Spoke::gather(const Facts& facts, int, bool, Observer& observer, const StopWish& stop) {
  Facts mine = facts;
  lost_.clear();
  told_ends_.clear();
  if (const auto early = std::exchange(welcome_, std::nullopt); early && link_ >= 0) hear_of_meeting(*early, mine, observer);
  Sparingly sparingly;
  const std::int64_t begun = base::now_ns();
  for (;;) {
    if (stop.wait(look_every_s) != 0) return {};
    if (link_ < 0) try_to_connect();
    if (links_) {
      for (const Links::Event& event : links_->take()) {
        hear_of_connection(event);
        if (event.kind != Links::Event::Kind::frame) continue;
        if (auto gathered = hear_of_meeting(event.frame, mine, observer)) return *gathered;
      }
    }
    const double waited = base::seconds_since(begun);
    if (waited > rendezvous_.timeout_s + (joined_ ? patience_with_machine_0_s : 0)) {
      throw base::machine_error("launch",
                                "machine 0 at {} was not there within {:.0f} s (parallel.timeout_s): {}. Start it there, and check {} and "
                                "that its port is open.",
                                where(), rendezvous_.timeout_s, last_error_, rendezvous_.address_setting);
    }
    if (joined_ || waited < silence_before_words_s) continue;
    if (sparingly.worth_saying("waiting")) observer.say(fmt::format("waiting for machine 0 at {} ({}).", where(), last_error_));
  }
}

std::optional<Gathered> Spoke::hear_of_meeting(const Frame& frame, Facts& mine, Observer& observer) {
  try {
    return answer(frame, mine, observer);
  } catch (const Malformed& error) {
    throw base::usage_error("launch", "machine 0 at {} speaks another version: {}. Run the same build on all machines.", where(),
                            error.what());
  }
}

std::optional<Gathered> Spoke::answer(const Frame& frame, Facts& mine, Observer& observer) {
  switch (static_cast<Say>(frame.kind)) {
    case Say::welcome: {
      const std::string file = Welcome::unpack(frame.body).file;
      for (SharedFolder& folder : mine.folders) folder.seen = !file.empty() && sees(fs::path(folder.path) / fs::path(file).filename());
      mine.launcher = launcher_;
      mine.answers = file;
      links_->send(link_, static_cast<std::uint8_t>(Say::facts), mine.pack());
      return std::nullopt;
    }
    case Say::waiting: observer.say(frame.body + "."); return std::nullopt;
    case Say::agreed: {
      Agreement agreement = Agreement::unpack(frame.body);
      // Two machines on one host meet by loopback; then the address is machine 0's.
      const std::string mine_here = links_->local_host(link_);
      if (!mine_here.starts_with("127.") && mine_here != "::1") agreement.bind_host = mine_here;
      return Gathered{.agreement = agreement};
    }
    case Say::refused: {
      const Refusal refusal = Refusal::unpack(frame.body);
      links_->drop(link_);
      throw base::UserError(static_cast<base::ExitCode>(refusal.exit_code), "launch", refusal.text);
    }
    case Say::end: {
      const Ending ending = Ending::unpack(frame.body);
      if (ending.restarts) return std::nullopt;
      links_->drop(link_);
      return Gathered{.agreement = std::nullopt, .outcome = ending.outcome};
    }
    default: return std::nullopt;
  }
}

int Spoke::way_to_store(int) { return links_->begin_streams_over(link_); }

Peers::News Spoke::exchange(const Standing& mine) {
  // What has ended is told at once, the rest now and then.
  std::string ends = mine.all_ended ? "all" : "";
  for (const RankEnd& rank : mine.ends) ends += fmt::format(" {}", rank.rank);
  if (ends != told_ends_ || base::seconds_since(told_ns_) > tell_every_s) {
    links_->send(link_, static_cast<std::uint8_t>(Say::standing), pack(mine, base::now_ns()));
    told_ends_ = ends;
    told_ns_ = base::now_ns();
  }
  News news;
  for (const Links::Event& event : links_->take()) {
    if (event.kind == Links::Event::Kind::left) {
      link_ = -1;
      joined_ = false;
      lost_ = fmt::format("machine 0 ({}) is gone: {}", where(), event.text);
    }
    if (event.kind != Links::Event::Kind::frame) continue;
    if (event.frame.kind == static_cast<std::uint8_t>(Say::welcome)) welcome_ = event.frame;
    if (event.frame.kind == static_cast<std::uint8_t>(Say::stop)) {
      const Stop stop = Stop::unpack(event.frame.body);
      news.stop_signal = stop.signal;
      news.at_once = stop.at_once;
    } else if (event.frame.kind == static_cast<std::uint8_t>(Say::end)) {
      const Ending ending = Ending::unpack(event.frame.body);
      news.verdict = ending.outcome;
      meets_again_ = ending.restarts;
    }
  }
  news.lost = lost_;
  return news;
}

void Spoke::wish_to_stop(int signal, bool at_once) {
  links_->send(link_, static_cast<std::uint8_t>(Say::stop), Stop{signal, at_once}.pack());
}

void Spoke::conclude(const Ending& ending) {
  meets_again_ = false;
  if (ending.restarts) return;
  links_->drop(link_);
  link_ = -1;
}

std::unique_ptr<Machines> make_machines(Rendezvous rendezvous) {
  if (rendezvous.node == 0) return std::make_unique<Hub>(std::move(rendezvous));
  return std::make_unique<Spoke>(std::move(rendezvous));
}

}  // namespace lockstep::launch::meet
