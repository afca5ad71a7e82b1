// The lease file: a counter of fixed width that its owner overwrites in place, then one line about the owner.
#include "journal/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/hash/fresh.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "base/text.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int counter_digits = 20;
constexpr double settle_s = 0.2;  // two that take over at once have seen each other after this

std::string read_small(const char* path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

// Fields of /proc/PID/stat behind the name, which may hold spaces: the state is the first, the start time the 20th.
std::vector<std::string> stat_fields(std::int64_t pid) {
  const std::string text = read_small(fmt::format("/proc/{}/stat", pid).c_str());
  const std::size_t name_end = text.rfind(')');
  std::vector<std::string> fields;
  if (name_end == std::string::npos) return fields;
  std::istringstream words(text.substr(name_end + 1));
  for (std::string word; words >> word;) fields.push_back(word);
  return fields;
}

constexpr std::size_t state_field = 0, start_field = 19;

std::int64_t start_ticks_of(const std::vector<std::string>& fields) {
  return fields.size() > start_field ? base::parse_integer(fields[start_field]).value_or(0) : 0;
}

enum class Life { alive, gone, unknown };
Life life_of(const ProcessIdentity& owner, const ProcessIdentity& self) {
  if (owner.boot.empty() || owner.boot != self.boot || owner.pid_namespace != self.pid_namespace) return Life::unknown;
  const auto fields = stat_fields(owner.pid);
  // Where users do not see each other's processes (hidepid) a signal still tells that there is one, though not which.
  if (fields.empty() && ::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == EPERM) return Life::unknown;
  if (fields.empty() || start_ticks_of(fields) != owner.start_ticks) return Life::gone;
  const std::string& state = fields[state_field];
  return state == "Z" || state == "X" ? Life::gone : Life::alive;  // a zombie writes nothing more
}

base::UserError file_error(std::string_view doing, const fs::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return base::checkpoint_error("journal", "cannot {} {}: {}. One run owns a folder by this file: {}.", doing, path.string(),
                                base::why_refused(path, error, base::Access::write),
                                full ? "free some space" : "choose a folder you may write to");
}

void write_all(int file, std::string_view text, const fs::path& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw file_error("write", path, errno);
    done += static_cast<std::size_t>(written);
  }
  if (::fsync(file) != 0 && errno != EINVAL) throw file_error("sync", path, errno);
}

}  // namespace

ProcessIdentity this_process() {
  ProcessIdentity self;
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) self.host = name;
  self.boot = read_small("/proc/sys/kernel/random/boot_id");
  std::error_code error;
  self.pid_namespace = fs::read_symlink("/proc/self/ns/pid", error).string();
  self.pid = ::getpid();
  self.start_ticks = start_ticks_of(stat_fields(self.pid));
  if (self.pid_namespace.empty() || self.start_ticks == 0) self.boot.clear();  // then nobody can be sure of this process
  return self;
}

LeaseTimes lease_times() {
  LeaseTimes times;
  if (const char* text = std::getenv("LOCKSTEP_TEST_LEASE")) std::istringstream(text) >> times.renew_s >> times.expire_s;
  return times;
}

struct Lease::Holder {
  std::uint64_t counter = 0;
  std::string token;
  ProcessIdentity process;
  std::string since;

  std::string name() const {
    return process.pid > 0 ? fmt::format("process {} on {}, since {}", process.pid, process.host, since) : "an unknown process";
  }
};

namespace {

// A file that is damaged or being written has no owner that can be named, but the bytes still tell whether someone renews it. Nothing, and
// errno, where they cannot be read: a disk that fails says nothing about owners.
std::optional<std::string> text_of(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = file.open() ? ::read(file.number(), piece, sizeof piece) : -1;
    if (got < 0 && file.open() && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

// Owners that were taken over while they may have lived, a line each, beside the lease. It outlives the lease of whoever took over: an
// owner that comes back after that one has ended, and finds no lease, must not take the folder for its own.
fs::path lost_owners(const fs::path& lease) { return lease.string() + ".lost"; }

bool was_taken_over(const fs::path& lease, std::string_view token) {
  const auto text = text_of(lost_owners(lease));
  return text && text->find(token) != std::string::npos;
}

void mark_as_lost(const fs::path& lease, const std::string& token) {
  const fs::path path = lost_owners(lease);
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.open()) throw file_error("write", path, errno);
  write_all(file.number(), token + "\n", path);
}

bool is_named(const base::Descriptor& file, const fs::path& path) {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(file.number(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

std::optional<Lease::Holder> Lease::read() const { return read(path_); }

std::optional<Lease::Holder> Lease::read(const fs::path& path) {
  const auto text = text_of(path);
  if (!text) return std::nullopt;
  Holder holder;
  holder.counter = static_cast<std::uint64_t>(base::parse_integer(std::string_view(*text).substr(0, counter_digits)).value_or(0));
  const std::size_t line_end = text->find('\n');
  const Json json = line_end == std::string::npos ? Json() : Json(base::json_if_any(text->substr(line_end + 1)).value_or(nullptr));
  if (!json.is_object()) {
    holder.token = *text;
    return holder;
  }
  holder.token = json.value("token", "");
  holder.since = json.value("since", "");
  holder.process = {json.value("host", ""), json.value("boot", ""), json.value("pid_namespace", ""), json.value("pid", std::int64_t{0}),
                    json.value("start_ticks", std::int64_t{0})};
  return holder;
}

std::optional<LeaseHolder> lease_holder(const fs::path& folder) {
  const auto holder = Lease::read(folder / "lease");
  if (!holder) return std::nullopt;
  const Life life = life_of(holder->process, this_process());
  return LeaseHolder{holder->token, holder->name(), life == Life::gone, life == Life::alive ? holder->process.pid : 0};
}

Lease::Lease(const fs::path& folder, Options options)
    : path_(folder / "lease"), options_(std::move(options)), token_(base::fresh_id(3)), since_(base::utc_time()) {
  base::real_files().create_directories(folder);
  take();
  thread_ = base::quiet_thread([this] { renew(); });
}

Lease::~Lease() {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (const auto holder = read(); holder && holder->token == token_) ::unlink(path_.c_str());
}

std::optional<std::string> Lease::lost_to() const {
  const base::Lock lock(mutex_);
  return lost_;
}

void Lease::take() {
  bool takes_over = false;
  for (;;) {
    if (create()) {
      if (!takes_over) return;
      std::this_thread::sleep_for(std::chrono::duration<double>(settle_s));
      if (const auto holder = read(); holder && holder->token == token_) return;
      file_.close();
      continue;
    }
    const auto holder = read();
    if (!holder) {
      if (errno != ENOENT) throw file_error("read", path_, errno);
      continue;  // given back since
    }
    if (holder->token == token_) {  // someone moved it by mistake while it was made, and has put it back
      file_ = base::Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
      if (file_.open()) return;
      continue;
    }
    if (life_of(holder->process, options_.self) != Life::gone) {
      watch(*holder);
      mark_as_lost(path_, holder->token);
    }
    takes_over = remove_dead(*holder) || takes_over;
  }
}

// False where someone else has it. The file comes into being with all its bytes: link() fails where the name is taken.
bool Lease::create() {
  const ProcessIdentity& self = options_.self;
  const Json owner = {{"host", self.host},
                      {"pid", self.pid},
                      {"since", since_},
                      {"boot", self.boot},
                      {"pid_namespace", self.pid_namespace},
                      {"start_ticks", self.start_ticks},
                      {"token", token_}};
  const std::string text = fmt::format("{:0{}}\n{}\n", counter_, counter_digits, owner.dump());
  const std::string beside = fmt::format("{}.{}", path_.string(), token_);
  base::Descriptor file(::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.open()) throw file_error("create", beside, errno);
  try {
    write_all(file.number(), text, beside);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  const bool linked = ::link(beside.c_str(), path_.c_str()) == 0;
  const int error = errno;
  struct stat status = {};
  const bool there = linked || (::fstat(file.number(), &status) == 0 && status.st_nlink == 2);  // a server's answer may get lost on its way
  ::unlink(beside.c_str());
  if (there) {
    file_ = std::move(file);
    return true;
  }
  if (error == EEXIST) return false;
  if (error != EPERM && error != EOPNOTSUPP && error != ENOSYS && error != EMLINK) throw file_error("create", path_, error);
  // No links here: a name that must be new does as well, but for the moment until its bytes are there.
  base::Descriptor plain(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!plain.open() && errno == EEXIST) return false;
  if (!plain.open()) throw file_error("create", path_, errno);
  file_ = std::move(plain);
  write_all(file_.number(), text, path_);
  return true;
}

// A dead file goes only while its own lock is held and its name still means it, so of many who take over one removes it and none removes
// what the others have made since. A disk without locks is left with the rest: the file is moved away before it goes, and what was moved by
// mistake is put back.
bool Lease::remove_dead(const Holder& dead) {
  const base::Descriptor file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.open() && errno == ENOENT) return false;
  if (file.open() && ::flock(file.number(), LOCK_EX) == 0) {
    const auto named = read();
    if (!named || named->token != dead.token || !is_named(file, path_)) return false;
  }
  const std::string away = fmt::format("{}.dead.{}", path_.string(), token_);
  if (::rename(path_.c_str(), away.c_str()) != 0) {
    if (errno != ENOENT) throw file_error("take over", path_, errno);
    return false;
  }
  const auto moved = text_of(away);
  const bool right = moved && (moved->find(dead.token) != std::string::npos);
  if (!right && ::link(away.c_str(), path_.c_str()) != 0 && errno != EEXIST) ::rename(away.c_str(), path_.c_str());
  ::unlink(away.c_str());
  return right;
}

// Returns when an owner that may be gone has not renewed for expire_s. Throws where the folder is in use.
void Lease::watch(const Holder& holder) {
  const auto refuse = [&](std::string_view how) {
    throw base::usage_error("launch",
                            "{} {} is in use by {}{}. Two runs in one folder would overwrite each other's files. Wait for it to end, stop "
                            "it, or choose {}.",
                            options_.what, path_.parent_path().string(), holder.name(), how, options_.fix);
  };
  if (life_of(holder.process, options_.self) == Life::alive) refuse("");
  if (options_.say) {
    options_.say(fmt::format("{} {} was left by {}; if it is not renewed within {:g} s it is taken over.", options_.what,
                             path_.parent_path().string(), holder.name(), options_.times.expire_s));
  }
  for (std::int64_t start = base::now_ns(); base::seconds_since(start) < options_.times.expire_s;) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.times.renew_s / 4));
    const auto now = read();
    if (!now) return;
    if (now->token != holder.token || now->counter != holder.counter) refuse(", which renewed it just now");
  }
}

void Lease::renew() {
  base::Lock lock(mutex_);
  while (!closing_ && !lost_) {
    if (wake_.wait_for(lock, std::chrono::duration<double>(options_.times.renew_s),
                       [this]() LOCKSTEP_REQUIRES(mutex_) { return closing_; }))
      return;
    lock.unlock();
    renew_once();
    lock.lock();
  }
}

// A disk that refuses for a while is no loss: only another owner is.
void Lease::renew_once() {
  const auto holder = read();
  const bool is_anothers = holder && holder->token != token_;
  if (is_anothers || (!holder && was_taken_over(path_, token_))) {
    const base::Lock lock(mutex_);
    lost_ = fmt::format("{} {} was taken over by {}, because this process ({} on {}) had not renewed its claim for {:g} s", options_.what,
                        path_.parent_path().string(), holder ? holder->name() : "a process that has ended since", options_.self.pid,
                        options_.self.host, options_.times.expire_s);
    return;
  }
  if (!holder) {
    std::error_code error;
    if (!fs::exists(path_.parent_path(), error)) return;
    try {
      base::Descriptor old = std::exchange(file_, {});
      if (!create()) file_ = std::move(old);
    } catch (const base::UserError&) {
    }
    return;
  }
  const std::string text = fmt::format("{:0{}}", ++counter_, counter_digits);
  if (file_.open() && ::pwrite(file_.number(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) ::fsync(file_.number());
}

bool lease_is(const fs::path& folder, std::string_view token) {
  if (token.empty()) return true;
  const auto text = text_of(folder / "lease");
  return text ? text->find(token) != std::string::npos : !was_taken_over(folder / "lease", token);
}

}  // namespace lockstep::journal
