// Finds entries by code and in messages.
#include "front/catalog/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "front/catalog/groups.h"

namespace lockstep::catalog {
namespace {

std::vector<Entry> all_groups() {
  std::vector<Entry> all;
  for (auto* group : {about_programs, about_gpus, about_communication, about_room, about_files, about_training}) {
    for (Entry& entry : group()) all.push_back(std::move(entry));
  }
  return all;
}

const Entry* recognize_line(std::string_view line, bool consequences) {
  for (const Entry& entry : entries()) {
    if (entry.consequence != consequences) continue;
    for (const std::string_view pattern : entry.patterns) {
      if (matches(line, pattern)) return &entry;
    }
  }
  return nullptr;
}

// A code that stands in the line: "ls-401" and no digit more.
const Entry* named_in(std::string_view line) {
  for (std::size_t at = line.find("ls-"); at != line.npos; at = line.find("ls-", at + 1)) {
    const std::string_view code = line.substr(at, 6);
    const bool longer = at + 6 < line.size() && std::isdigit(static_cast<unsigned char>(line[at + 6])) != 0;
    const bool inside = at > 0 && std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0;
    if (const Entry* entry = longer || inside || code.size() < 6 ? nullptr : find(code)) return entry;
  }
  return nullptr;
}

}  // namespace

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = all_groups();
  return all;
}

const Entry* find(std::string_view code) {
  std::string wanted = base::lower(code);
  if (!wanted.starts_with("ls-")) wanted = "ls-" + wanted;
  const auto found =
      std::find_if(entries().begin(), entries().end(), [&](const Entry& entry) { return base::lower(entry.code) == wanted; });
  return found == entries().end() ? nullptr : &*found;
}

const Entry& known(std::string_view code) {
  const Entry* entry = find(code);
  base::check(entry != nullptr, fmt::format("{} is in the catalogue", code));
  return *entry;
}

bool matches(std::string_view line, std::string_view pattern) {
  std::size_t from = 0;
  for (;;) {
    const std::size_t star = pattern.find('*');
    const std::size_t at = line.find(pattern.substr(0, star), from);
    if (at == line.npos) return false;
    if (star == pattern.npos) return true;
    from = at + star;
    pattern.remove_prefix(star + 1);
  }
}

const Entry* recognize(std::string_view message) {
  const std::vector<std::string> lines = base::split(base::lower(message), '\n');
  for (const bool consequences : {false, true}) {
    const Entry* best = nullptr;
    for (const std::string& line : lines) {
      const Entry* entry = recognize_line(line, consequences);
      if (entry != nullptr && (best == nullptr || entry < best)) best = entry;
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

std::vector<Hit> scan(std::string_view log) {
  std::vector<Hit> hits;
  std::map<const Entry*, std::size_t> place;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = log.substr(begin, end - begin);
    const std::string small = base::lower(line);
    begin = end + 1;
    ++number;
    const Entry* entry = named_in(small);
    if (entry == nullptr) entry = recognize_line(small, false);
    if (entry == nullptr) entry = recognize_line(small, true);
    if (entry == nullptr) continue;
    const auto [at, is_new] = place.try_emplace(entry, hits.size());
    if (is_new) hits.push_back({.entry = entry, .line = number, .text = base::trim(line)});
    ++hits[at->second].times;
  }
  std::stable_partition(hits.begin(), hits.end(), [](const Hit& hit) { return !hit.entry->consequence; });
  return hits;
}

std::string pointer_to(const Entry& entry) {
  return fmt::format("{} {}: `lockstep explain {}` says more", entry.code, entry.title, entry.code);
}

}  // namespace lockstep::catalog
