// Reading flags and section.key=value from the command line; which flags there are, the table of options says.
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/table/option.h"

extern char** environ;

namespace lockstep::config {
namespace {

bool is_config_flag(std::string_view flag) {
  return flag == "-f" || flag == "--config" || flag == "--config-path" || flag == "--config_path";
}

bool looks_like_flag(std::string_view text) {
  return text.size() > 1 && text[0] == '-' && !base::parse_number(text) && !std::isdigit(static_cast<unsigned char>(text[1]));
}

bool is_truth(std::string_view text) {
  const std::string word = base::lower(text);
  return word == "true" || word == "false";
}

class Parser {
 public:
  Parser(std::span<const std::string> args, CommandLine& result) : args_(args), result_(result) {}

  void run() {
    while (next_ < args_.size()) {
      const std::string& argument = args_[next_++];
      if (argument == "--") {
        result_.leftover.insert(result_.leftover.end(), args_.begin() + static_cast<std::ptrdiff_t>(next_), args_.end());
        break;
      }
      if (argument == "-h" || argument == "--help")
        result_.help = true;
      else if (looks_like_flag(argument))
        flag(argument);
      else
        positional(argument);
    }
    if (problems_.empty()) return;
    if (problems_.size() == 1) throw base::usage_error("config", "{}", problems_.front());
    throw base::usage_error("config", "{} mistakes on the command line:\n  {}", problems_.size(), base::join(problems_, "\n  "));
  }

 private:
  void positional(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    // A path may hold '=' too; what stands left of an assignment is a name.
    const bool names = equals != argument.npos && equals > 0 && argument.find('/') >= equals;
    if (!names) {
      result_.leftover.push_back(argument);
      return;
    }
    const std::string key = argument.substr(0, equals);
    result_.request.assignments.push_back({key, argument.substr(equals + 1), argument});
  }

  void flag(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    std::optional<std::string> value;
    if (equals != argument.npos) value = argument.substr(equals + 1);
    if (!name.starts_with("--") && name.size() > 2) {
      const std::string two_dashes = "-" + name;
      if (find_flag(two_dashes) || is_config_flag(two_dashes)) {  // -data is a slip, not -d with the value "ata"
        problems_.push_back(fmt::format("{} is not a flag. Did you mean {}?", name, two_dashes));
        return skip_value(value);
      }
      if (is_config_flag(name.substr(0, 2)) || find_flag(name.substr(0, 2))) {  // -fFILE
        value = argument.substr(2);
        name = name.substr(0, 2);
      }
    }
    if (is_config_flag(name)) return config_file(name, value);
    if (const auto match = find_flag(name)) return known(name, *match, value);
    if (negated(name, value)) return;
    refuse(name);
    skip_value(value);
  }

  void refuse(const std::string& name) {
    if (const auto what = not_built_yet(key_like(name))) {
      problems_.push_back(fmt::format("{}: {} is not built yet. Leave the flag out.", name, *what));
    } else {
      const std::string suggestion = suggestion_for_flag(name);
      problems_.push_back(fmt::format("{} is not a flag.{}", name, suggestion.empty() ? " --help lists them." : suggestion));
    }
  }

  static std::string key_like(std::string_view flag) {
    std::string key(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
    std::replace(key.begin(), key.end(), '-', '_');
    return key;
  }

  // An unknown flag most likely had a value; reading on as if it were an argument would only add noise.
  void skip_value(const std::optional<std::string>& value) {
    if (!value && next_ < args_.size() && !looks_like_flag(args_[next_]) && args_[next_].find('=') == std::string::npos) ++next_;
  }

  void config_file(const std::string& name, std::optional<std::string> value) {
    if (!value || value->empty()) value = take_value(name, "a YAML or JSON file, such as models/nano.yaml");
    if (!value) return;
    if (result_.request.file) {
      problems_.push_back(
          fmt::format("{} {}: a config file was given already ({}). Give one, and change single settings with section.key=value.", name,
                      *value, result_.request.file->string()));
    } else {
      result_.request.file = *value;
    }
  }

  void known(const std::string& name, const Match& match, std::optional<std::string> value) {
    const Option& option = *match.option;
    const bool switches = option.kind == Kind::boolean || !match.when_true.empty();
    if (!value && switches) value = next_ < args_.size() && is_truth(args_[next_]) ? args_[next_++] : "true";
    if (!value) value = take_value(name, expectation(option));
    if (!value) return;
    const std::string key = match.when_true.empty() ? std::string(option.key) : key_like(name);
    result_.request.assignments.push_back({key, *value, name});
  }

  bool negated(const std::string& name, const std::optional<std::string>& value) {
    if (!name.starts_with("--no-") && !name.starts_with("--no_")) return false;
    const auto match = find_flag("--" + name.substr(5));
    if (!match || (match->option->kind != Kind::boolean)) return false;
    if (value)
      problems_.push_back(fmt::format("{} takes no value. Write --{}={}.", name, name.substr(5), *value));
    else
      result_.request.assignments.push_back({std::string(match->option->key), "false", name});
    return true;
  }

  static std::string expectation(const Option& option) {
    if (option.kind == Kind::choice) {
      std::vector<std::string> names;
      for (const Choice& choice : option.choices) names.emplace_back(choice.name);
      return base::join(names, " | ");
    }
    const std::string_view example = option.about.example;
    if (option.kind == Kind::integers) return "numbers such as 0,1";
    if (option.kind == Kind::texts) return "words such as q_proj,v_proj";
    if (!example.empty()) return fmt::format("{} such as {}", option.kind == Kind::text ? "a text" : "a number", example);
    return option.kind == Kind::text ? "a text" : "a number";
  }

  std::optional<std::string> take_value(const std::string& name, const std::string& expected) {
    if (next_ < args_.size() && !looks_like_flag(args_[next_])) return args_[next_++];
    problems_.push_back(
        fmt::format("{} needs a value: {}{}.", name, expected, next_ < args_.size() ? fmt::format(", but {} follows", args_[next_]) : ""));
    return std::nullopt;
  }

  std::span<const std::string> args_;
  CommandLine& result_;
  std::size_t next_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

CommandLine parse_command_line(std::span<const std::string> args, std::map<std::string, std::string> environment) {
  CommandLine result;
  result.request.environment = std::move(environment);
  Parser(args, result).run();
  return result;
}

CommandLine parse_command_line(std::span<const std::string> args) { return parse_command_line(args, process_environment()); }

void expect_no_leftover(const CommandLine& line, std::string_view command) {
  if (line.leftover.empty()) return;
  const std::string& first = line.leftover.front();
  const std::string_view endings[] = {".yaml", ".yml", ".json"};
  const bool file = std::any_of(std::begin(endings), std::end(endings), [&](std::string_view ending) { return first.ends_with(ending); });
  throw base::usage_error("config", "`{}` does not know what to do with {}. {}", command, first,
                          file ? fmt::format("Did you mean -f {}?", first) : "Settings look like trainer.seed=1, flags like --seed 1.");
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("LOCKSTEP_")) continue;
    const std::size_t equals = text.find('=');
    if (equals != text.npos) found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

}  // namespace lockstep::config
