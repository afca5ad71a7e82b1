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
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "front/job/meeting.h"
#include "front/job/setup.h"
#include "front/launch/libtorch.h"
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

config::Settings settings_for(const TextWish& wish, const FileWish& files, const launch::Environment& environment) {
  config::Request request;
  std::string device = wish.device;
  if (device.starts_with("cuda:")) {
    request.assignments.push_back({"trainer.distributed.gpu_ids", device.substr(5), "--device"});
    device = "cuda";
  }
  request.assignments.push_back({"trainer.target_device", device, "--device"});
  const bool on_gpus = device != "cpu" && !launch::look_at_machine(environment).visible.empty();
  // A rank more on a CPU would only hold the model twice.
  const std::int64_t on_cpu = files.shard ? 2 : 1;
  if (files.ranks || !on_gpus) request.assignments.push_back({"parallel.ranks", std::to_string(files.ranks.value_or(on_cpu)), "--ranks"});
  config::Settings settings = config::load(request);
  settings.values.name = "generate";
  settings.values.launch.spawn = true;
  settings.values.trainer.batch_size = 1;
  return settings;
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

// The folder of the ranks' parts and logs; gone when this is.
class Parts {
 public:
  explicit Parts(fs::path path) : path_(std::move(path)) { base::real_files().create_directories(path_); }
  ~Parts() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Parts(const Parts&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
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
  job::Setup setup = job::set_up(settings_for(wish, files, environment), environment);
  const launch::StopWish stop;
  const show::Signals signals([&](int signal) { stop.ask(signal); });
  launch::sweep_old_pages();
  launch::Job& job = setup.job;
  launch::use_own_worker(job, environment);
  const Parts parts(files.output.string() + ".parts-" + job.id);
  job.folder.root = parts.path();
  job.arguments = {
      "generate-file", "--file", files.file.string(), "--parts", parts.path().string(), "--batch-size", std::to_string(files.batch_size)};
  if (files.shard) job.arguments.insert(job.arguments.end(), {"--shard", "1"});
  for (const auto& more : {model_arguments(wish), sampling_arguments(wish)})
    job.arguments.insert(job.arguments.end(), more.begin(), more.end());
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
  const Parts folder(fs::temp_directory_path() / fmt::format("lockstep-generate-{}", ::getpid()));
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
