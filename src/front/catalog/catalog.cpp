// Finds entries by code and in messages.
#include "front/catalog/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "front/catalog/groups.h"

namespace lockstep::catalog {
namespace {

std::vector<Entry> all_groups() {
  std::vector<Entry> all;
  for (auto* group : {about_programs, about_other_trainers, about_drivers, about_gpus, about_collectives, about_machines, about_network,
                      about_memory, about_limits, about_files, about_training}) {
    for (Entry& entry : group()) all.push_back(std::move(entry));
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.code < b.code; });
  return all;
}

// Which pairs of neighboring characters a line has. Most patterns have a pair that is not among them, and need not be looked for: a log of
// 54 MB takes 0.6 s, and 4.9 without this.
class Pairs {
 public:
  explicit Pairs(std::string_view line) {
    for (std::size_t i = 1; i < line.size(); ++i) seen_.set(index(line[i - 1], line[i]));
  }
  bool may_hold(std::string_view pattern) const {
    for (std::size_t i = 1; i < pattern.size(); ++i) {
      if (pattern[i - 1] != '*' && pattern[i] != '*' && !seen_.test(index(pattern[i - 1], pattern[i]))) return false;
    }
    return true;
  }

 private:
  static std::size_t index(char a, char b) { return (static_cast<unsigned char>(a) & 63U) << 6U | (static_cast<unsigned char>(b) & 63U); }
  std::bitset<std::size_t{1} << 12U> seen_;
};

// What a line tells of: the entry of the longest pattern in it, as that one is the most particular.
const Entry* recognize_line(std::string_view line) {
  const Entry* best = nullptr;
  std::size_t longest = 0;
  const Pairs pairs(line);
  for (const Entry& entry : entries()) {
    for (const std::string_view pattern : entry.patterns) {
      if (pattern.size() <= longest || !pairs.may_hold(pattern) || !matches(line, pattern)) continue;
      best = &entry;
      longest = pattern.size();
    }
  }
  return best;
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
  const Entry* best = nullptr;
  for (const std::string& line : base::split(base::lower(message), '\n')) {
    const Entry* entry = recognize_line(line);
    if (entry == nullptr) continue;
    const auto rank = [](const Entry* one) { return std::pair(one->consequence, one); };
    if (best == nullptr || rank(entry) < rank(best)) best = entry;
  }
  return best;
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
    if (entry == nullptr) entry = recognize_line(small);
    if (entry == nullptr) continue;
    const auto [at, is_new] = place.try_emplace(entry, hits.size());
    if (is_new) hits.push_back({.entry = entry, .line = number, .text = base::trim(line)});
    ++hits[at->second].times;
  }
  std::stable_partition(hits.begin(), hits.end(), [](const Hit& hit) { return !hit.entry->consequence; });
  return hits;
}

std::vector<const Entry*> about(std::string_view words) {
  static constexpr std::string_view idle[] = {"the", "and", "with", "for", "not", "does", "why", "how", "what", "error", "run", "runs"};
  std::vector<std::string> wanted(1);
  for (const char c : base::lower(words)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      wanted.back() += c;
    else if (!wanted.back().empty())
      wanted.emplace_back();
  }
  std::erase_if(wanted, [](const std::string& word) { return word.size() < 3 || std::ranges::find(idle, word) != std::end(idle); });
  std::vector<const Entry*> found;
  for (const Entry& entry : entries()) {
    const std::string text = " " + base::lower(fmt::format("{} {}", entry.title, entry.symptom));
    const auto speaks_of = [&](const std::string& word) {  // from its beginning: "hang" is in "hangs", not in "change"
      for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
        if (std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0) return true;
      }
      return false;
    };
    if (!wanted.empty() && std::ranges::all_of(wanted, speaks_of)) found.push_back(&entry);
  }
  return found;
}

std::string pointer_to(const Entry& entry) {
  return fmt::format("{} {}: `lockstep explain {}` says more", entry.code, entry.title, entry.code);
}

}  // namespace lockstep::catalog
