// Ranks write parts beside the output; the whole is made from them at the end and renamed, so that nobody sees half a file.
#include "front/app/text/generate_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/json_lines.h"
#include "base/file/temporary_folder.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "front/job/meeting.h"
#include "front/show/signals.h"
#include "text/terminal.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Every line, parsed: {"prompt": "..."} or {"messages": [...]}, with whatever else stands in it.
std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  for (auto& [number, line] : base::read_json_lines(path, "generate")) {
    const auto refuse = [&path, at = number](const std::string& why) {
      throw base::data_error("generate", "{}, line {}: {}.", path.string(), at, why);
    };
    if (!line.is_object()) refuse("a line is an object with \"prompt\" or \"messages\"");
    if (line.contains("prompt") == line.contains("messages")) refuse("it needs either \"prompt\" or \"messages\"");
    if (line.contains("prompt") && !line["prompt"].is_string()) refuse("\"prompt\" is not a text");
    if (line.contains("messages") && (!line["messages"].is_array() || line["messages"].empty()))
      refuse("\"messages\" is not a list of messages");
    for (std::size_t i = 0; line.contains("messages") && i < line["messages"].size(); ++i) {
      const Json& message = line["messages"][i];
      if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
        refuse(fmt::format("message {} has no \"role\": every message says who speaks, \"user\" say", i + 1));
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty()) throw base::data_error("generate", "{} holds no prompt.", path.string());
  return lines;
}

// A bar on standard error, where that is a terminal.
class Progress : public launch::Observer {
 public:
  explicit Progress(std::size_t total) : total_(total), shown_(::isatty(STDERR_FILENO) == 1) {}
  ~Progress() override { clear(); }
  void tick(std::span<const journal::PageView> pages) override {
    if (!shown_) return;
    std::int64_t done = 0;
    for (const journal::PageView& page : pages) done += page.step;
    constexpr int width = 30;
    const auto filled = static_cast<int>(width * done / static_cast<std::int64_t>(total_));
    fmt::print(stderr, "\r[{:=<{}}{:{}}] {}/{} prompts", "", filled, "", width - filled, done, total_);
    std::fflush(stderr);
  }
  void say(std::string_view line) override {
    clear();
    fmt::print(stderr, "{}\n", line);
  }

 private:
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  std::size_t total_;
  bool shown_;
};

std::vector<Json> merged(std::vector<Json> lines, const fs::path& parts, int ranks) {
  std::size_t found = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream part(parts / fmt::format("{}.jsonl", rank), std::ios::binary);
    for (std::string text; std::getline(part, text); ++found) {
      const Json answer = base::parse_json(text);
      Json& line = lines.at(answer.at("line").get<std::size_t>());
      line["completion"] = answer.at("completion");
      line["finish"] = answer.at("finish");
    }
  }
  base::check(found == lines.size(), "every prompt is answered once");
  return lines;
}

}  // namespace

namespace {

struct Answers {
  int exit_code = 0;
  std::vector<Json> lines = {};  // with their completions, where all went well
};
Answers answer(const TextWish& wish, const FileWish& files, std::vector<Json> lines) {
  const launch::Environment environment = launch::process_environment();
  job::Setup setup = set_up_ranks("generate", wish, files, environment);
  const launch::StopWish stop;
  const show::Signals signals([&](int signal) { stop.ask(signal); });
  launch::sweep_old_pages();
  launch::Job& job = setup.job;
  const base::TemporaryFolder parts(files.output.string() + ".parts-" + job.id);
  job.folder.root = parts.path();
  job.arguments.insert(job.arguments.begin(), {"generate-file", "--file", files.file.string(), "--parts", parts.path().string(),
                                               "--batch-size", std::to_string(files.batch_size)});
  job::Meeting meeting(setup, environment, {}, {});
  for (const std::string& note : setup.plan.notes) fmt::print(stderr, "note: {}\n", note);

  launch::Outcome outcome;
  {
    Progress progress(lines.size());
    if (const auto ended = meeting.begin(0, progress, stop)) return {128 + SIGINT};
    outcome = launch::run_job(job, progress, stop);
  }
  if (outcome.kind == launch::Outcome::Kind::failed) {
    fmt::print(stderr, "{}", outcome.report.text);
    return {outcome.report.exit_code};
  }
  if (outcome.kind != launch::Outcome::Kind::complete) return {128 + (outcome.signal != 0 ? outcome.signal : SIGINT)};
  return {0, merged(std::move(lines), parts.path(), job.world_size)};
}

std::string as_lines(const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return text;
}

}  // namespace

int generate_file(const TextWish& wish, const FileWish& files) {
  const Answers answers = answer(wish, files, read_lines(files.file));
  if (answers.exit_code != 0) return answers.exit_code;
  base::write_text_atomically(base::real_files(), files.output, as_lines(answers.lines));
  fmt::print("{} completions in {}\n", answers.lines.size(), files.output.string());
  return 0;
}

int generate_together(const TextWish& wish, FileWish files, const Json& line) {
  const base::TemporaryFolder folder = base::TemporaryFolder::fresh("lockstep-generate");
  files.file = folder.path() / "prompt.jsonl";
  files.output = folder.path() / "answer.jsonl";
  base::write_text_atomically(base::real_files(), files.file, as_lines({line}));
  const Answers answers = answer(wish, files, {line});
  if (answers.exit_code != 0) return answers.exit_code;
  const std::string text = line.value("prompt", "") + answers.lines.front().at("completion").get<std::string>();
  fmt::print("{}\n", ::isatty(STDOUT_FILENO) == 1 ? text::harmless(text) : text);
  return 0;
}

}  // namespace lockstep::app
