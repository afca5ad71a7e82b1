// CLI11 behind one function, so that every verb treats help and mistakes alike.
#include "front/app/flags.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace lockstep::app {
namespace {

std::vector<std::string> dashed(std::span<const std::string> args) {
  std::vector<std::string> result(args.begin(), args.end());
  for (auto& argument : result) {
    if (!argument.starts_with("--")) continue;
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size())), '_', '-');
  }
  std::reverse(result.begin(), result.end());  // as CLI11 takes them
  return result;
}

// For a verb that takes settings and was given a flag of `lockstep train`: how that is written here.
std::string setting_for(CLI::App& app, std::span<const std::string> args) {
  const auto takes_settings = [](const CLI::App* one) { return one->get_option_no_throw("settings") != nullptr; };
  const std::vector<CLI::App*> parts = app.get_subcommands();
  if (!takes_settings(&app) && std::none_of(parts.begin(), parts.end(), takes_settings)) return "";
  const std::vector<std::string> extra = app.remaining(/*recurse=*/true), words = dashed(args);  // last word first
  const auto found = std::find_first_of(words.rbegin(), words.rend(), extra.begin(), extra.end());
  if (found == words.rend()) return "";
  std::vector<std::string> flag = {*found};
  if (found + 1 != words.rend()) flag.push_back(*(found + 1));
  try {
    const auto settings = config::parse_command_line(flag, {}).request.assignments;
    if (!settings.empty()) return fmt::format(". It is a flag of `lockstep train`; write {}={}", settings[0].key, settings[0].value);
  } catch (const base::UserError&) {  // nor is it one of those
  }
  return "";
}

}  // namespace

bool read_flags(CLI::App& app, std::span<const std::string> args, const std::string& verb) {
  try {
    app.parse(dashed(args));
    return true;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    std::string command = verb, wrong = error.what();
    for (const CLI::App* part : app.get_subcommands()) command += " " + part->get_name();
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) wrong += setting_for(app, args);
    throw base::usage_error(verb, "{}. `lockstep {} --help` lists the flags.", wrong, command);
  }
}

}  // namespace lockstep::app
