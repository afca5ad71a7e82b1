// CLI11 behind one function, so that every verb treats help and mistakes alike.
#include "front/app/flags.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"

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

}  // namespace

bool read_flags(CLI::App& app, std::span<const std::string> args, const std::string& verb) {
  try {
    app.parse(dashed(args));
    return true;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw base::usage_error(verb, "{}. `lockstep {} --help` lists the flags.", error.what(), verb);
  }
}

}  // namespace lockstep::app
