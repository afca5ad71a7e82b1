// The C interface, include/lockstep/lockstep_c.h. No exception leaves it.
#include <csignal>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/temporary_folder.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "embed/child.h"
#include "lockstep/lockstep_c.h"

using namespace lockstep;

struct lockstep_run {
  embed::Child child;
  std::string event, folder, error;
};

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* no_run = "there is no run: NULL was given instead of what lockstep_start gave out.";

std::vector<std::string> list(const char* const* texts) {
  std::vector<std::string> result;
  for (; texts != nullptr && *texts != nullptr; ++texts) result.emplace_back(*texts);
  return result;
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

char* copy(const std::string& text) { return ::strdup(text.c_str()); }

void give(char** where, const std::string& text) {
  if (where != nullptr) *where = copy(text);
}

std::vector<std::string> with(std::vector<std::string> first, std::vector<std::string> more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

struct Said {
  int code;
  std::string output, errors;
};

Said call(const char* program, std::vector<std::string> arguments) {
  embed::Child child(text_or_empty(program), std::move(arguments));
  std::string output;
  while (const auto line = child.line(-1)) output += *line + "\n";
  const int code = child.wait();
  return {code, std::move(output), child.errors()};
}

const Json* member(const std::optional<Json>& event, const char* name) {
  if (!event || !event->is_object()) return nullptr;
  const auto found = event->find(name);
  return found == event->end() ? nullptr : &*found;
}

std::vector<std::string> generate(const char* program, const char* const* arguments, const char* const* prompts) {
  const base::TemporaryFolder folder = base::TemporaryFolder::fresh("lockstep-generate");
  const fs::path asked = folder.path() / "prompts.jsonl", answered = folder.path() / "completions.jsonl";
  std::string lines;
  for (const std::string& prompt : list(prompts))
    lines += Json{{"prompt", prompt}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  base::write_text_atomically(base::real_files(), asked, lines);
  const Said said = call(program, with({"generate"}, with(list(arguments), {"--file", asked, "--output", answered})));
  if (said.code != 0) throw std::runtime_error(said.errors.empty() ? said.output : said.errors);
  std::vector<std::string> texts;
  for (const std::string& line : base::split(base::read_text(answered), '\n'))
    if (!line.empty()) texts.push_back(base::parse_json(line).at("completion").get<std::string>());
  return texts;
}

}  // namespace

extern "C" {

const char* lockstep_version(void) { return LOCKSTEP_VERSION; }
int lockstep_abi(void) { return LOCKSTEP_ABI; }

lockstep_run* lockstep_start(const char* program, const char* const* arguments) try {
  return new lockstep_run{
      {text_or_empty(program), with(with({"train"}, list(arguments)), {"--headless", "--stop-with-stdin"})}, {}, {}, {}};
} catch (const std::exception&) {
  return nullptr;
}

const char* lockstep_next(lockstep_run* run, double timeout_s) try {
  while (run != nullptr) {
    auto line = run->child.line(timeout_s);
    if (!line) return nullptr;
    const std::optional<Json> event = base::json_if_any(*line);
    if (!event || !event->is_object()) continue;
    if (event->value("event", "") == "plan") run->folder = event->value("run", "");
    run->event = std::move(*line);
    return run->event.c_str();
  }
  return nullptr;
} catch (const std::exception&) {
  return nullptr;
}

int lockstep_is_over(const lockstep_run* run) { return run == nullptr || run->child.ended() ? 1 : 0; }

const char* lockstep_folder(const lockstep_run* run) { return run == nullptr || run->folder.empty() ? nullptr : run->folder.c_str(); }

const char* lockstep_error(lockstep_run* run) try {
  if (run == nullptr) return no_run;
  run->error = run->child.errors();
  return run->error.c_str();
} catch (const std::exception&) {
  return "";
}

void lockstep_stop(lockstep_run* run) {
  if (run != nullptr) run->child.send(SIGTERM);
}

int lockstep_wait(lockstep_run* run) {
  while (lockstep_next(run, -1) != nullptr) {  // the plan may still be among what is left
  }
  return run != nullptr ? run->child.wait() : static_cast<int>(base::ExitCode::bug);
}

void lockstep_free(lockstep_run* run) { delete run; }

int lockstep_number(const char* event, const char* name, double* value) try {
  if (event == nullptr || name == nullptr || value == nullptr) return 0;
  const auto json = base::json_if_any(event);
  const Json* found = member(json, name);
  if (found == nullptr || !found->is_number()) return 0;
  *value = found->get<double>();
  return 1;
} catch (const std::exception&) {
  return 0;
}

char* lockstep_text(const char* event, const char* name) try {
  if (event == nullptr || name == nullptr) return nullptr;
  const auto json = base::json_if_any(event);
  const Json* found = member(json, name);
  return found != nullptr && found->is_string() ? copy(found->get<std::string>()) : nullptr;
} catch (const std::exception&) {
  return nullptr;
}

int lockstep_call(const char* program, const char* const* arguments, char** output, char** error) try {
  const Said said = call(program, list(arguments));
  give(output, said.output);
  give(error, said.errors);
  return said.code;
} catch (const std::exception& caught) {
  give(output, "");
  give(error, caught.what());
  return static_cast<int>(base::ExitCode::bug);
}

char** lockstep_generate(const char* program, const char* const* arguments, const char* const* prompts, char** error) try {
  const std::vector<std::string> texts = generate(program, arguments, prompts);
  auto** result = static_cast<char**>(std::calloc(texts.size() + 1, sizeof(char*)));
  for (std::size_t i = 0; result != nullptr && i < texts.size(); ++i) result[i] = copy(texts[i]);
  return result;
} catch (const std::exception& caught) {
  give(error, caught.what());
  return nullptr;
}

void lockstep_free_text(char* text) { std::free(text); }

void lockstep_free_texts(char** texts) {
  for (char** text = texts; texts != nullptr && *text != nullptr; ++text) std::free(*text);
  std::free(reinterpret_cast<void*>(texts));
}

}  // extern "C"
