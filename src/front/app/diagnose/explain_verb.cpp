// `lockstep explain`: what a code or a message means, and which known failures a log tells of.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/catalog/catalog.h"
#include "front/catalog/explained.h"
#include "journal/ending.h"
#include "journal/run_folder.h"
#include "text/terminal.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t most_bytes = std::size_t{64} << 20;  // of a log; its end counts

struct Log {
  std::string name;  // empty: standard input, or a message
  std::string text;
};

struct Found {
  std::string log;
  catalog::Hit hit;
};

std::string wrapped(std::string_view label, const std::string& text) {
  constexpr std::size_t width = 100, indent = 10;
  std::string lines = fmt::format("  {:<{}}", label, indent - 2);
  std::size_t column = indent;
  for (const std::string& word : base::split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += " ";
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines + "\n";
}

std::string to_text(const catalog::Entry& entry) {
  return fmt::format("{}  {}\n", entry.code, entry.title) + wrapped("seen", std::string(entry.symptom)) +
         wrapped("because", std::string(entry.cause)) + wrapped("try", catalog::fix_sentence(entry));
}

std::string list_all() {
  std::string text = "Failures that have a code; `lockstep explain CODE` tells of one, `lockstep explain < LOG` finds them in a log.\n\n";
  for (const catalog::Entry& entry : catalog::entries()) text += fmt::format("  {}  {}\n", entry.code, entry.title);
  return text;
}

// For who types "out of memory" or "nccl" instead of a message. Empty where there is nothing near, or too much.
std::string list_near(const std::string& words) {
  constexpr std::size_t longest = 80, most = 12;
  if (words.size() > longest) return "";
  std::string text;
  const std::vector<const catalog::Entry*> near = catalog::about(words);
  for (const catalog::Entry* entry : near) text += fmt::format("  {}  {}\n", entry->code, entry->title);
  return near.size() <= most ? text : "";
}

std::string read_end(std::FILE* file) {
  std::string text;
  std::vector<char> piece(1 << 16);
  for (std::size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), file)) > 0;) {
    text.append(piece.data(), got);
    if (text.size() > 2 * most_bytes) text.erase(0, text.size() - most_bytes);
  }
  return text;
}

Log read_log(const fs::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw base::usage_error("explain", "{} cannot be read.", path.string());
  return {path.string(), read_end(file.get())};
}

// What its launcher said at the end, then every rank's log, in order.
std::vector<Log> logs_of_run(const fs::path& folder) {
  const fs::path ranks = journal::RunFolder{folder}.rank_logs();
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(ranks, error)) {
    if (entry.path().extension() == ".log") paths.push_back(entry.path());
  }
  if (paths.empty())
    throw base::usage_error("explain", "{} is a folder without logs of ranks (ranks/*.log). Give a run's folder.", folder.string());
  std::sort(paths.begin(), paths.end());
  std::vector<Log> logs;
  if (const auto ending = journal::read_ending({folder}); ending && !ending->report.empty())
    logs.push_back({(folder / "end.json").string(), ending->report});
  for (const fs::path& path : paths) logs.push_back(read_log(path));
  return logs;
}

std::vector<Found> search(const std::vector<Log>& logs) {
  std::vector<Found> found;
  for (const Log& log : logs) {
    for (catalog::Hit& hit : catalog::scan(log.text)) found.push_back({log.name, std::move(hit)});
  }
  // Over all logs: what stands on its own first.
  std::stable_partition(found.begin(), found.end(), [](const Found& one) { return !one.hit.entry->consequence; });
  return found;
}

void show(const std::vector<Found>& found, bool json) {
  if (json) {
    Json list = Json::array();
    for (const Found& one : found) {
      Json item = catalog::explained(one.hit);
      item["log"] = one.log;
      list.push_back(std::move(item));
    }
    std::puts(list.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return;
  }
  std::vector<const catalog::Entry*> told;
  for (const Found& one : found) {
    const std::string where = one.log.empty() ? fmt::format("line {}", one.hit.line) : fmt::format("{}:{}", one.log, one.hit.line);
    const std::string again = one.hit.times > 1 ? fmt::format(" ({} lines)", one.hit.times) : "";
    std::string line = text::harmless(one.hit.text);
    if (line.size() > 160) line = line.substr(0, 157) + "...";
    fmt::print("{}{}: {}\n", where, again, line);
    const bool is_new = std::find(told.begin(), told.end(), one.hit.entry) == told.end();
    fmt::print("{}\n", is_new ? to_text(*one.hit.entry) : fmt::format("{}  {}, as above\n", one.hit.entry->code, one.hit.entry->title));
    told.push_back(one.hit.entry);
  }
}

int explain_logs(const std::vector<Log>& logs, bool json) {
  const std::vector<Found> found = search(logs);
  if (found.empty() && !json) {
    const std::string near = logs.size() == 1 ? list_near(logs[0].text) : "";
    std::fputs(near.empty() ? "Nothing in it is known here. `lockstep explain` lists what is; `lockstep check` looks at this machine.\n"
                            : ("Not a message that is known. These speak of it; `lockstep explain CODE` tells of one:\n\n" + near).c_str(),
               stdout);
  } else {
    show(found, json);
  }
  return found.empty() ? static_cast<int>(base::ExitCode::usage) : 0;
}

bool looks_like_code(const std::string& word) {
  const std::string small = base::lower(word);
  return small.starts_with("ls-") || (small.size() == 3 && base::parse_integer(small).has_value());
}

const catalog::Entry& entry_named(const std::string& word) {
  if (const catalog::Entry* entry = catalog::find(word)) return *entry;
  throw base::usage_error("explain", "there is no code {}. `lockstep explain` lists all.", word);
}

}  // namespace

int run_explain_verb(std::span<const std::string> args) {
  std::vector<std::string> what;
  bool json = false;
  CLI::App app{
      "Says what a code (LS-401), a message, or a log means, and what to do. Knows the messages of lockstep, and those of NCCL, CUDA, "
      "Gloo, "
      "PyTorch and other trainers.\n\n  lockstep explain LS-401\n  lockstep explain < train.log\n  lockstep explain runs/NAME",
      "lockstep explain"};
  app.add_option("WHAT", what, "codes, log files, folders of runs, or a message in quotes; standard input if left out");
  app.add_flag("--json", json, "as JSON: a list of entries, with where each was found");
  if (!read_flags(app, args, "explain")) return 0;

  if (what.empty() && ::isatty(STDIN_FILENO) == 0) {
    std::string text = read_end(stdin);
    if (!text.empty()) return explain_logs({{"", std::move(text)}}, json);
  }
  if (what.empty() && !json) std::fputs(list_all().c_str(), stdout);
  Json all = Json::array();
  for (const catalog::Entry& entry : catalog::entries()) {
    if (what.empty() && json) all.push_back(catalog::explained(entry));
  }
  std::vector<Log> logs;
  for (const std::string& word : what) {
    std::error_code error;
    if (looks_like_code(word)) {
      if (json)
        all.push_back(catalog::explained(entry_named(word)));
      else
        std::fputs((to_text(entry_named(word)) + "\n").c_str(), stdout);
    } else if (fs::is_directory(word, error)) {
      for (Log& log : logs_of_run(word)) logs.push_back(std::move(log));
    } else if (fs::exists(word, error)) {
      logs.push_back(read_log(word));
    } else if (word.find(' ') == word.npos && list_near(word).empty()) {
      throw base::usage_error("explain", "'{}' is neither a code nor a file. A message goes into quotes.", word);
    } else {
      logs.push_back({"", word});
    }
  }
  if (!logs.empty()) return explain_logs(logs, json);
  if (json) std::puts(all.dump(2).c_str());
  return 0;
}

}  // namespace lockstep::app
