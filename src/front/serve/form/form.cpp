// The table as JSON, and a draft through the same loader, checks and plan that `lockstep train` goes through.
#include "front/serve/form/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "config/mistakes.h"
#include "config/table/option.h"
#include "config/table/value.h"
#include "front/job/setup.h"
#include "front/serve/form/commands.h"
#include "journal/run_folder.h"
#include "layout/decoder.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using config::Option;

constexpr std::string_view kind_names[] = {"boolean", "integer", "number", "text", "integers", "texts", "choice"};

// As a person would type it: lists without brackets, texts without quotes.
std::string typed(const Option& option, const config::RunConfig& config) {
  const config::Value value = option.get(config);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return base::join(*texts, ",");
  std::string written = config::write_value(option, value);
  if (option.is_list()) std::erase_if(written, [](char c) { return c == '[' || c == ']' || c == ' '; });
  return written;
}

Json option_json(const Option& option) {
  Json json = {{"key", option.key},
               {"section", option.section()},
               {"kind", kind_names[static_cast<std::size_t>(option.kind)]},
               {"says", option.about.says},
               {"unit", option.about.unit},
               {"zero", option.about.zero},
               {"standard", typed(option, config::RunConfig())},
               {"example", option.about.example},
               {"rule", config::rule_of(option)}};
  for (const config::Choice& choice : option.choices) json["choices"].push_back(choice.name);
  for (const std::string_view flag : option.about.flags) json["flags"].push_back(flag);
  for (const config::Alias& alias : option.about.aliases) json["aliases"].push_back(alias.name);
  const auto& paths = path_settings();
  json["path"] = std::find(paths.begin(), paths.end(), option.key) != paths.end();
  return json;
}

bool is_of_a_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-'; }

// A mistake without the place it was typed at, which is the field itself.
std::string without_place(std::string text) {
  const std::size_t colon = text.find(": ");
  if (colon != std::string::npos && colon > 0 && config::find_key(text.substr(0, colon))) text.erase(0, colon + 2);
  if (text.starts_with('[')) {  // "[config] text"
    if (const std::size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

Json mistake_json(const std::string& text) {
  const std::string said = without_place(text);
  return {{"keys", settings_named_in(said)}, {"text", said}};
}

Json model_json(const config::RunConfig& config) {
  const config::ModelConfig& model = config.model;
  std::error_code error;
  return {{"name", model.name},
          {"path", model.path},
          {"family", config::name_of(model.family)},
          {"parameters", layout::count_parameters(model)},
          {"layers", model.num_layers},
          {"hidden_size", model.hidden_size},
          {"dtype", config::name_of(model.dtype)},
          {"vocab_size", model.vocab_size},
          {"max_seq_len", model.max_seq_len},
          {"has_tokenizer", !model.path.empty() && fs::exists(fs::path(model.path) / "tokenizer.json", error)}};
}

config::Request request_of(const Folders& folders, const Draft& draft) {
  config::Request request{.file = draft.file, .environment = config::process_environment(), .assignments = {}};
  for (const auto& [key, value] : draft.values) request.assignments.push_back({key, value, key});
  if (draft.launcher == "srun" && !draft.values.contains("parallel.master_addr"))  // it knows, and several machines must have one
    request.assignments.push_back({"parallel.master_addr", "node0", "parallel.master_addr"});
  request.assignments.push_back({"output", folders.output().string(), "output"});
  return request;
}

// Paths of the settings as they were understood, whatever they came from.
void expect_allowed(const Folders& folders, const config::RunConfig& config) {
  Values paths;
  for (const std::string& key : path_settings()) paths[key] = typed(config::option_of(key), config);
  folders.expect_allowed(paths);
}

std::vector<std::string> arguments_of(const Draft& draft, const Folders& folders, bool resumes) {
  std::vector<std::string> words = {"train"};
  if (draft.file) words.insert(words.end(), {"-f", draft.file->string()});
  words.insert(words.end(), {"--output", folders.output().string(), "--name", draft.name});
  if (resumes) words.insert(words.end(), {"--resume", "auto"});
  for (const auto& [key, value] : draft.values) {
    const bool told_otherwise = key == "name" || key == "checkpoint.resume" || (draft.launcher != "lockstep" && is_for_own_launcher(key));
    if (!told_otherwise) words.push_back(key + "=" + value);
  }
  return words;
}

// All machines are taken to have as many ranks as this one: the others tell when they meet.
Launching launching_of(const Draft& draft, job::Setup& setup) {
  const config::ParallelConfig& parallel = setup.settings.values.parallel;
  const int machines = static_cast<int>(parallel.nnodes);
  if (machines > 1) {
    job::plan_for_world(setup);
    setup.plan.notes.push_back(fmt::format("{} machines with {} rank{} each are counted; others may have another number.", machines,
                                           setup.job.local_world_size, setup.job.local_world_size == 1 ? "" : "s"));
  }
  return {.launcher = draft.launcher,
          .ranks = {.each_machine = setup.job.local_world_size,
                    .machines = machines,
                    .master_addr = parallel.master_addr,
                    .master_port = static_cast<int>(parallel.master_port)},
          .node_rank = static_cast<int>(parallel.node_rank)};
}

// What an epoch comes to, as far as it is known by now.
Json epoch_json(const Counting::Count& count, const job::RunPlan& plan, const config::TrainerConfig& trainer) {
  Json json = {{"counting", count.underway}, {"mistake", without_place(count.mistake)}};
  if (!count.samples) return json;
  const std::int64_t batch = plan.batch.global_batch_size, steps = (*count.samples + batch - 1) / batch;
  json["samples"] = *count.samples;
  json["steps"] = steps;
  if (trainer.max_steps > 0 && steps > 0) json["epochs"] = static_cast<double>(trainer.max_steps) / static_cast<double>(steps);
  return json;
}

void judge(const Folders& folders, Counting* counting, Draft& draft, bool resumes) {
  expect_own_keys(draft.values);
  expect_launcher(draft.launcher);
  folders.expect_allowed(draft.values);
  config::Settings settings = config::load(request_of(folders, draft));
  expect_allowed(folders, settings.values);
  draft.judged["model"] = model_json(settings.values);
  job::Setup setup = job::set_up(std::move(settings), launch::process_environment());
  const Launching launching = launching_of(draft, setup);
  const Counting::Count count = counting != nullptr ? counting->of(setup.settings.values) : Counting::Count();
  if (setup.settings.values.trainer.max_steps == 0) setup.plan.epoch_samples = count.samples;
  draft.name = setup.settings.values.name;
  folders.expect_allowed(Values{{"name", draft.name}});
  draft.arguments = arguments_of(draft, folders, resumes);
  draft.judged["plan"] = base::parse_json(job::to_json(setup.plan, setup.settings.values));
  draft.judged["plan"]["epoch"] = epoch_json(count, setup.plan, setup.settings.values.trainer);
  draft.judged["plan"]["memory_total"] = setup.plan.memory.total();
  draft.judged["plan"]["device_bytes"] = setup.gpu_bytes;
  draft.judged["plan"]["on_gpus"] = setup.on_gpus;
  draft.judged["name"] = draft.name;
  draft.judged.update(commands_of(draft.arguments, launching));
  draft.good = true;
}

}  // namespace

void expect_own_keys(const Values& values) {
  const std::vector<std::string> known = config::known_keys();
  for (const auto& [key, value] : values) {
    if (std::find(known.begin(), known.end(), key) == known.end()) throw base::usage_error("ui", "{} is not a setting.", key.substr(0, 80));
  }
}

Json schema() {
  Json list = Json::array();
  for (const Option& option : config::options()) list.push_back(option_json(option));
  return list;
}

std::vector<std::string> settings_named_in(const std::string& text) {
  std::vector<std::string> keys;
  if (const auto match = config::find_key(text.substr(0, text.find(" = ")))) keys.emplace_back(match->option->key);  // "name = x must be"
  for (std::size_t begin = 0; begin < text.size();) {
    if (!is_of_a_name(text[begin])) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < text.size() && is_of_a_name(text[end])) ++end;
    std::string word = text.substr(begin, end - begin);
    begin = end;
    while (word.ends_with('.')) word.pop_back();
    const bool is_flag = word.starts_with("--"), is_key = word.find_first_of("._") != std::string::npos;
    const auto match = is_flag ? config::find_flag(word) : is_key ? config::find_key(word) : std::nullopt;
    if (match && std::find(keys.begin(), keys.end(), match->option->key) == keys.end()) keys.emplace_back(match->option->key);
  }
  return keys;
}

Draft draft(const Folders& folders, Counting* counting, Asked asked) {
  const std::string& resumed = asked.resumed;
  Draft made{.values = std::move(asked.values), .launcher = std::move(asked.launcher)};
  std::erase_if(made.values, [](const auto& one) { return one.second.empty(); });
  made.judged["errors"] = Json::array();
  try {
    if (!resumed.empty()) {
      made.file = journal::RunFolder{folders.run(resumed)}.config();
      made.values["name"] = resumed;
      made.values["checkpoint.resume"] = "auto";
    }
    judge(folders, counting, made, !resumed.empty());
  } catch (const config::Mistakes& mistakes) {
    for (const std::string& mistake : mistakes.list()) made.judged["errors"].push_back(mistake_json(mistake));
  } catch (const base::UserError& error) {
    made.judged["errors"].push_back(mistake_json(error.what()));
  }
  return made;
}

}  // namespace lockstep::serve
