// Putting the layers together: defaults, then the file, then the environment, then the command line, with every mistake collected.
#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/config.h"
#include "config/file.h"
#include "config/adapter/folder.h"
#include "config/follow_folder.h"
#include "config/import/import.h"
#include "config/mistakes.h"
#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

// One value on its way in: who said it, under which spelling.
struct Incoming {
  std::string spelled;
  Written written;
  Origin origin;
  std::string where;
};

// Values that switch a thing off: a file may say `num_experts: 0` for a dense model.
bool means_off(const Written& written) {
  if (written.form == Written::Form::null) return true;
  if (written.form == Written::Form::list) return written.items.empty() && !written.nested;
  const std::string text = base::lower(written.text);
  return written.form != Written::Form::map &&
         (text == "0" || text == "false" || text == "no" || text == "off" || text == "none" || text.empty());
}

class Loader {
 public:
  enum class Folder { follow, ignore };
  Loader(const Request& request, Folder folder) : request_(request), folder_(folder) {
    for (const Option& option : options()) settings_.sources.emplace(option.key, Source{});
  }

  Settings run() {
    file();
    environment();
    for (const Assignment& one : request_.assignments) take({one.key, {.text = one.value}, Origin::command_line, one.where});
    if (problems_.empty() && folder_ == Folder::follow) problems_ = follow_model_folder(settings_);
    if (problems_.empty() && folder_ == Folder::follow) problems_ = follow_adapter_folder(settings_);
    if (problems_.empty()) problems_ = broken_rules(settings_);
    if (!problems_.empty()) throw Mistakes(std::move(problems_));
    fill_in();
    return std::move(settings_);
  }

 private:
  void file() {
    if (!request_.file) return;
    file_ = find_config_file(*request_.file);
    const FileContent content = read_config_file(file_);
    const auto place = [&](int line) { return fmt::format("{}:{}", file_.string(), line); };
    std::map<const Option*, const FileEntry*> set_by;
    auto problem = content.problems.begin();  // both lists are in the order of lines
    const auto problems_up_to = [&](int line) {
      for (; problem != content.problems.end() && problem->line <= line; ++problem) {
        problems_.push_back(fmt::format("{}: {}", place(problem->line), problem->text));
      }
    };
    for (const FileEntry& entry : content.entries) {
      problems_up_to(entry.line);
      const std::string where = place(entry.line);
      const Option* option = take({entry.key, entry.written, Origin::file, where});
      if (option == nullptr) continue;
      const auto [first, fresh] = set_by.emplace(option, &entry);
      if (!fresh) {
        problems_.push_back(fmt::format("{}: {} and {} (line {}) are the same setting, {}. Keep one.", where, entry.key, first->second->key,
                                        first->second->line, option->key));
      }
    }
    problems_up_to(std::numeric_limits<int>::max());
    if (!problems_.empty()) refuse_foreign_file();
  }

  // A list of all its keys would tell less than the one command that reads them.
  void refuse_foreign_file() const {
    const auto foreign = recognize_foreign(file_);
    if (!foreign) return;
    const std::string file = file_.string();
    if (!foreign->why_not.empty())
      throw base::usage_error("config", "{} is a file of {}, not a run file: {}.", file, foreign->program, foreign->why_not);
    throw base::usage_error("config",
                            "{} is a file of {} ({}), not a run file. Make one of it: lockstep config import {} --output run.yaml", file,
                            foreign->program, base::join(foreign->keys, ", "), file);
  }

  void environment() {
    std::map<std::string, const Option*> known;
    for (const Option& option : options()) known.emplace(environment_name(option), &option);
    for (const auto& [name, value] : request_.environment) {
      if (const auto found = known.find(name); found != known.end()) {
        if (!value.empty()) take({std::string(found->second->key), {.text = value}, Origin::environment, name});
      } else if (belongs_to_a_section(name)) {
        unknown_variable(name, known);
      }
    }
  }

  // LOCKSTEP_TRAINER_... is ours to understand; LOCKSTEP_LIBTORCH and the like are other rooms'.
  static bool belongs_to_a_section(const std::string& name) {
    for (const std::string_view section : {"MODEL_", "TRAINER_", "LORA_", "DATA_", "PARALLEL_", "CHECKPOINT_", "MONITOR_", "LAUNCH_"}) {
      if (name.starts_with(fmt::format("LOCKSTEP_{}", section))) return true;
    }
    return false;
  }

  void unknown_variable(const std::string& name, const std::map<std::string, const Option*>& known) {
    std::vector<std::string> names;
    for (const auto& [candidate, option] : known) names.push_back(candidate);
    const auto best = base::nearest(name, names);
    problems_.push_back(
        fmt::format("environment variable {} names no setting.{}", name, best ? fmt::format(" Did you mean {}?", *best) : ""));
  }

  // Sets one value. Returns the option if it now has a value from here.
  const Option* take(const Incoming& in) {
    const auto match = find_key(in.spelled);
    if (!match) {
      unknown_key(in);
      return nullptr;
    }
    const Option& option = *match->option;
    if (in.written.form == Written::Form::null) return nullptr;  // `key:` with nothing behind it keeps the default
    Written written = in.written;
    if (!match->when_true.empty()) {
      const auto yes = read_switch(in);
      if (!yes || !*yes) return nullptr;
      written = {.text = std::string(match->when_true)};
    }
    const auto read = read_value(option, written);
    if (const auto* refusal = std::get_if<Refusal>(&read)) {
      refuse(in, option, refusal->rule);
      return &option;
    }
    option.set(settings_.values, std::get<Value>(read));
    settings_.sources[std::string(option.key)] = {in.origin, in.where};
    return &option;
  }

  // For aliases such as bf16: true.
  std::optional<bool> read_switch(const Incoming& in) {
    const bool scalar = in.written.form == Written::Form::scalar || in.written.form == Written::Form::quoted;
    const auto read = scalar ? read_boolean(in.written.text) : std::nullopt;
    if (read) return read;
    problems_.push_back(fmt::format("{}: {} = {} must be true or false.", in.where, in.spelled, in.written.text));
    return std::nullopt;
  }

  void unknown_key(const Incoming& in) {
    if (const auto what = not_built_yet(in.spelled)) {
      if (means_off(in.written)) return;
      problems_.push_back(fmt::format("{}: {}: {} is not built yet. Remove the key to train without it.", in.where, in.spelled, *what));
      return;
    }
    // A run folder of an earlier version holds every setting of its time.
    if (folder_ == Folder::ignore && in.origin == Origin::file && in.spelled == "parallel.broadcast_buffers") return;
    const bool section = in.written.form == Written::Form::map;
    std::string suggestion;
    if (const auto hint = counterpart_of(in.spelled)) {
      suggestion = " " + *hint;
    } else if (section) {
      if (const auto best = base::nearest(in.spelled, section_names())) suggestion = fmt::format(" Did you mean {}?", *best);
    } else {
      suggestion = suggestion_for_key(in.spelled);
    }
    if (suggestion.empty()) suggestion = " `lockstep config explain` lists all settings.";
    problems_.push_back(fmt::format("{}: {} is not a {}.{}", in.where, in.spelled, section ? "section" : "setting", suggestion));
  }

  void refuse(const Incoming& in, const Option& option, const std::string& rule) {
    const std::string shown = in.written.form == Written::Form::quoted ? fmt::format("\"{}\"", in.written.text) : in.written.text;
    const std::string name = in.spelled == option.key ? in.spelled : fmt::format("{} ({})", in.spelled, option.key);
    problems_.push_back(fmt::format("{}: {} = {} {}.{}", in.where, name, shown.empty() ? "\"\"" : shown, rule, fix_for(in, option)));
  }

  static std::string fix_for(const Incoming& in, const Option& option) {
    if (option.kind == Kind::choice) return suggestion_for_choice(option, in.written.text);
    if (option.kind == Kind::boolean) return "";
    std::string example(option.about.example);
    if (example.empty()) example = write_value(option, option.get(RunConfig{}));
    if (option.is_list() && in.origin != Origin::file) std::erase_if(example, [](char c) { return c == '[' || c == ']' || c == ' '; });
    if (option.kind == Kind::text && example == "\"\"")
      return option.about.zero.empty() ? "" : fmt::format(" Leave it out for {}.", option.about.zero);
    if (option.about.zero.empty()) return fmt::format(" For example {}.", example);
    if (option.kind == Kind::text) return fmt::format(" For example {}; leave it out for {}.", example, option.about.zero);
    const std::string_view empty = option.about.zero_words.empty() ? "0" : option.about.zero_words.front();
    return fmt::format(" For example {}; {} means {}.", example, empty, option.about.zero);
  }

  // What may be left out of the model's shape and of the data's, so that everyone downstream sees whole numbers.
  void fill_in() {
    RunConfig& config = settings_.values;
    const ModelConfig given = config.model;
    config.model = with_defaults(given);
    if (given.family == Family::automatic && config.model.family != given.family)
      derived("model.family", "model.qkv_bias, model.qk_norm and model.sliding_window");
    if (given.kv_heads == 0) derived("model.kv_heads", "model.num_heads");
    if (given.head_dim == 0) derived("model.head_dim", "model.hidden_size / model.num_heads");
    if (given.intermediate_size == 0) derived("model.intermediate_size", "model.hidden_size");
    if (config.data.seq_len == 0) {
      config.data.seq_len = standard_seq_len(config.model);
      derived("data.seq_len", config.model.path.empty() ? "model.max_seq_len" : "model.max_seq_len, 2048 at most");
    }
  }

  void derived(const char* key, std::string from) { settings_.sources[key] = {Origin::derived, std::move(from)}; }

  const Request& request_;
  std::filesystem::path file_;
  Folder folder_;
  Settings settings_;
  std::vector<std::string> problems_;
};

std::string all_of(const std::vector<std::string>& problems) {
  if (problems.size() == 1) return problems.front();
  std::string text = fmt::format("{} mistakes:", problems.size());
  for (const std::string& problem : problems) text += "\n  " + problem;
  return text;
}

}  // namespace

Mistakes::Mistakes(std::vector<std::string> list) : UserError(base::ExitCode::usage, "config", all_of(list)), list_(std::move(list)) {}

std::string Source::text() const {
  switch (origin) {
    case Origin::standard: return "default";
    case Origin::derived: return "follows from " + where;
    default: return where;
  }
}

const Source& Settings::source(std::string_view key) const {
  const auto found = sources.find(std::string(key));
  base::check(found != sources.end(), fmt::format("{} is a key of the table", key));
  return found->second;
}

Settings load(const Request& request) { return Loader(request, Loader::Folder::follow).run(); }

Settings load_complete(const Request& request) { return Loader(request, Loader::Folder::ignore).run(); }

}  // namespace lockstep::config
