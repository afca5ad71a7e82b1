// A conversation over JSON lines; what was said before stays in the cache.
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/signal_flag.h"
#include "rank/verbs/generate.h"

namespace lockstep::verbs {
namespace {

using Json = nlohmann::ordered_json;

void say(const Json& line) { std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush; }

}  // namespace

void serve_chat(const GenerateRequest& request) {
  base::SignalFlag interrupt(SIGINT, base::Calls::go_on);
  const TextModel model = open_text_model(request.source, request.device);
  if (!model.language->has_template()) {
    throw base::usage_error("chat",
                            "this model has no chat template, so there is no way to tell it who speaks. Use `lockstep generate --prompt`.");
  }
  task::GenerateOptions options = request.options;
  options.context = model.context();
  task::Generator generator(*model.decoder, *model.language, request.device, options);
  say({{"ready", true}, {"context", options.context}});
  std::uint64_t turn = 0;
  for (std::string line; std::getline(std::cin, line);) {
    interrupt.take();
    try {
      const Json messages = base::parse_json(line).at("messages");
      const auto completion = generator.go_on({model.language->encode_chat(messages), turn++}, [&](std::size_t, const std::string& piece) {
        say({{"text", piece}});
        return !interrupt.raised();
      });
      say({{"finish", task::name_of(completion.finish)}, {"tokens", completion.tokens.size()}, {"reused", completion.reused}});
    } catch (const base::UserError& error) {
      say({{"error", error.what()}});
    }
  }
}

}  // namespace lockstep::verbs
