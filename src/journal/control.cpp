// Made by link() and taken by rename(), both atomic: a wish is either taken up whole or still there.
#include "journal/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/text.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t most_bytes = 1 << 16;

std::string text_of(std::span<const Asked> wishes, std::string_view lease) {
  std::string text;
  for (const Asked& asked : wishes) text += Json{{"id", asked.id}, {"wish", name_of(asked.wish)}, {"lease", lease}}.dump() + "\n";
  return text;
}

std::string text_at(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error || size > most_bytes ? "" : base::read_text(path);
}

// Anybody may write the file: what is not a text counts as none.
std::string member(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string_view name_of(Wish wish) {
  switch (wish) {
    case Wish::stop: return "stop";
    case Wish::save: return "save";
    case Wish::evaluate: return "evaluate";
    case Wish::sample: return "sample";
  }
  return "";
}

std::optional<Wish> wish_named(std::string_view name) {
  const auto* found = std::find_if(std::begin(all_wishes), std::end(all_wishes), [&](Wish wish) { return name_of(wish) == name; });
  return found == std::end(all_wishes) ? std::nullopt : std::optional(*found);
}

bool leave_wishes(const fs::path& control, std::span<const Asked> wishes, std::string_view lease) {
  const fs::path beside = fmt::format("{}.{}", control.string(), wishes.front().id);
  base::write_text_atomically(base::real_files(), beside, text_of(wishes, lease));
  const bool linked = ::link(beside.c_str(), control.c_str()) == 0;
  const int problem = errno;
  std::error_code error;
  // Where there are no links, a name that was free a moment ago does.
  const bool no_links = !linked && (problem == EPERM || problem == EOPNOTSUPP || problem == ENOSYS);
  const bool moved = no_links && !fs::exists(control, error) && ::rename(beside.c_str(), control.c_str()) == 0;
  if (!moved) fs::remove(beside, error);
  if (linked || moved) return true;
  if (problem == EEXIST || no_links) return false;
  throw base::run_error("ask", "cannot write {}: {}.", control.string(), std::strerror(problem));
}

bool withdraw_wishes(const fs::path& control, std::span<const Asked> wishes) {
  const fs::path away = fmt::format("{}.{}", control.string(), wishes.front().id);
  if (::rename(control.c_str(), away.c_str()) != 0) return false;
  const bool ours = text_at(away).find(wishes.front().id) != std::string::npos;
  if (!ours) ::link(away.c_str(), control.c_str());
  std::error_code error;
  fs::remove(away, error);
  return ours;
}

ControlReader::ControlReader(fs::path control, std::string lease, double every_s)
    : control_(std::move(control)), lease_(std::move(lease)), every_s_(every_s), begun_(fs::file_time_type::clock::now()) {
  thread_ = base::quiet_thread([this] { look(); });
}

ControlReader::~ControlReader() {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ControlReader::look() {
  const fs::path taken = control_.string() + ".taken";
  base::Lock lock(mutex_);
  while (!closing_) {
    lock.unlock();
    // A disk that refuses for a moment loses no wish: it is still there at the next look.
    if (::access(control_.c_str(), F_OK) == 0 && ::rename(control_.c_str(), taken.c_str()) == 0) read_file(taken);
    lock.lock();
    wake_.wait_for(lock, std::chrono::duration<double>(every_s_), [this]() LOCKSTEP_REQUIRES(mutex_) { return closing_; });
  }
}

void ControlReader::read_file(const fs::path& taken) {
  std::error_code error;
  const bool recent = fs::last_write_time(taken, error) >= begun_;
  std::string text;
  try {
    text = text_at(taken);
  } catch (const base::UserError& problem) {
    base::log_warning("the control file could not be read: {}", problem.what());
  }
  fs::remove(taken, error);
  for (const std::string& line : base::split(text, '\n')) {
    const std::string word = base::trim(line);
    if (word.empty()) continue;
    const Json json = Json(base::json_if_any(word).value_or(nullptr));
    const bool plain = !json.is_object();
    if (plain ? !recent : member(json, "lease") != lease_) continue;  // for an earlier start
    const std::string name = plain ? word : member(json, "wish");
    const auto wish = wish_named(name);
    if (!wish) {
      base::log_warning("the control file asks for '{}', which is none of stop, save, evaluate and sample", name);
      continue;
    }
    const base::Lock lock(mutex_);
    new_.push_back({plain ? "" : member(json, "id"), *wish});
    has_new_ = true;
  }
}

Wishes ControlReader::announce() {
  if (!has_new_.exchange(false)) return 0;
  const base::Lock lock(mutex_);
  Wishes kinds = 0;
  for (Asked& asked : new_) {
    kinds |= static_cast<unsigned>(asked.wish);
    announced_.push_back(std::move(asked));
  }
  new_.clear();
  return kinds;
}

std::vector<Asked> ControlReader::take(Wishes kinds) {
  const base::Lock lock(mutex_);
  std::vector<Asked> taken;
  std::erase_if(announced_, [&](const Asked& asked) {
    if (!has(kinds, asked.wish)) return false;
    taken.push_back(asked);
    return true;
  });
  return taken;
}

std::vector<Asked> ControlReader::take_all() {
  announce();
  return take(~0u);
}

}  // namespace lockstep::journal
