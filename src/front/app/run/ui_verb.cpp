// `lockstep ui`: the page, served by this program to a browser.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/signal_flag.h"
#include "config/run_config.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/job/identity.h"
#include "front/http/server.h"
#include "front/serve/page.h"

namespace lockstep::app {
namespace {

constexpr int usual_port = 8750;
constexpr std::size_t shortest_token = 12;

struct UiWish {
  std::string host = "127.0.0.1", token, output = config::RunConfig().output;
  std::vector<std::string> folders;
  int port = usual_port;
};

void describe(CLI::App& app, UiWish& wish) {
  app.add_option("--port", wish.port, "where to listen; 0: any that is free")->capture_default_str()->check(CLI::Range(0, 65535));
  app.add_option("--output", wish.output, "where runs lie and new ones are made")->capture_default_str();
  app.add_option("--folder", wish.folders,
                 "a folder whose models and data the page may use; several may be given. If left out: this folder and the home folder");
  app.add_option("--host", wish.host, "address to listen on; any but this machine's own (127.0.0.1) needs a token")->capture_default_str();
  app.add_option(
      "--token", wish.token,
      "what a browser must know to see the page, 12 characters or more; LOCKSTEP_UI_TOKEN keeps it out of the list of processes");
}

std::string token_of(const UiWish& wish) {
  const char* variable = std::getenv("LOCKSTEP_UI_TOKEN");
  const std::string token = !wish.token.empty() ? wish.token : variable != nullptr ? variable : "";
  if (token.empty() && !serve::Guard::is_loopback(wish.host)) {
    throw base::usage_error(
        "ui",
        "--host {} opens the page to other machines, and who sees it can start programs here. Give a token that a browser "
        "must know: --token TEXT, or LOCKSTEP_UI_TOKEN=TEXT.",
        wish.host);
  }
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
  if (!token.empty() && (token.size() < shortest_token || token.find_first_not_of(plain) != std::string::npos))
    throw base::usage_error(
        "ui", "a token is {} or more letters, digits, '-', '_', '.' or '~', so that it fits into an address and nobody guesses it.",
        shortest_token);
  return token;
}

std::vector<std::string> folders_of(const UiWish& wish) {
  if (!wish.folders.empty()) return wish.folders;
  std::vector<std::string> folders = {"."};
  std::error_code error;
  if (const char* home = std::getenv("HOME"); home != nullptr && std::filesystem::is_directory(home, error)) folders.emplace_back(home);
  return folders;
}

// What the page listens with; an address that cannot be had, in the words of the flags that named it.
std::unique_ptr<http::Server> listening(const UiWish& wish, http::Server::Handler handler) {
  try {
    return std::make_unique<http::Server>(http::Server::Options{.host = wish.host, .port = wish.port}, std::move(handler));
  } catch (const std::system_error& error) {
    if (error.code().category() == http::host_category())
      throw base::usage_error("ui", "--host {}: {}. Give an address of this machine, such as 127.0.0.1 or 0.0.0.0.", wish.host,
                              error.code().message());
    throw base::machine_error(
        "ui", "cannot listen on {}:{}: {}.{}", wish.host, wish.port, error.code().message(),
        error.code() == std::errc::address_in_use ? " Another page may be open there; --port 0 takes any that is free." : "");
  }
}

}  // namespace

int run_ui_verb(std::span<const std::string> args) {
  UiWish wish;
  CLI::App app{
      "Serves a page to a browser on this machine: start runs, watch them, compare them, talk to models. Runs are processes of their own "
      "and go on when this program ends.",
      "lockstep ui"};
  describe(app, wish);
  if (!read_flags(app, args, "ui")) return 0;
  const std::string token = token_of(wish);
  const base::SignalFlag interrupted(SIGINT, base::Calls::are_interrupted), ended(SIGTERM, base::Calls::are_interrupted);
  serve::Page page({.host = wish.host, .token = token, .output = wish.output, .version = job::build_id(), .folders = folders_of(wish)});
  const auto server = listening(wish, [&](const http::Request& request) { return page.answer(request); });
  const bool v6 = wish.host.find(':') != std::string::npos;
  fmt::print("the page is at http://{}:{}/{}\nruns: {}. Ctrl-C ends the page; runs go on.\n", v6 ? "[" + wish.host + "]" : wish.host,
             server->port(), token.empty() ? "" : "?token=" + token, wish.output);
  std::fflush(stdout);
  server->run([&] { return interrupted.raised() || ended.raised(); });
  return 0;
}

}  // namespace lockstep::app
