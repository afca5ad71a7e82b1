// A conversation over JSON lines; what was said before stays in the cache.
#include <fmt/format.h>

#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/signal_flag.h"
#include "rank/verbs/generate.h"
#include "rank/verbs/together.h"

namespace lockstep::verbs {
namespace {

using Json = nlohmann::ordered_json;

void say(const Json& line) { std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush; }

// The next question that can be read; those that cannot are answered at once. Nothing: the input has ended.
std::optional<std::vector<std::int32_t>> next_question(const text::Language& language) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      return language.encode_chat(base::parse_json(line).at("messages"));
    } catch (const base::UserError& error) {
      say({{"error", error.what()}});
    } catch (const std::exception& error) {  // of JSON
      say({{"error", fmt::format("[chat] a line is {{\"messages\": [{{\"role\":, \"content\":}}, ...]}}: {}", error.what())}});
    }
  }
  return std::nullopt;
}

}  // namespace

void serve_chat(const GenerateRequest& request, const comm::Place& place, const std::shared_ptr<journal::PageWriter>& page) {
  base::SignalFlag interrupt(SIGINT, base::Calls::go_on);
  std::optional<Together> together;  // outlives the model, whose shards it carries
  if (request.shard && place.world_size > 1) together.emplace(place, request.device, page);
  const bool leads = !together || together->leads();
  page->set_phase(journal::Phase::loading, 0);
  const TextModel model = open_text_model(request.source, request.device, together ? &together->mesh() : nullptr);
  if (!model.language->has_template()) {
    throw base::usage_error("chat",
                            "this model has no chat template, so there is no way to tell it who speaks. Use `lockstep generate --prompt`.");
  }
  task::GenerateOptions options = request.options;
  options.context = model.context();
  if (together) {
    together->meet("loading a model");
    options.follow = together->follow();
  }
  task::Generator generator(*model.decoder, *model.language, request.device, options);
  const auto hear = [&](std::size_t, const std::string& piece) {
    if (leads) say({{"text", piece}});
    const bool goes_on = !interrupt.raised();
    return together ? together->as_first_says(goes_on) : goes_on;
  };
  page->set_phase(journal::Phase::sampling, 0);
  if (leads) say({{"ready", true}, {"context", options.context}});
  const auto ask = [&] { return next_question(*model.language); };
  for (std::uint64_t turn = 0; const auto question = together ? together->from_first(ask) : ask(); ++turn) {
    interrupt.take();
    try {
      const auto completion = generator.go_on({*question, turn}, hear);
      if (leads) say({{"finish", task::name_of(completion.finish)}, {"tokens", completion.tokens.size()}, {"reused", completion.reused}});
    } catch (const base::UserError& error) {
      if (error.code() == base::ExitCode::run) throw;  // another rank is gone
      if (leads) say({{"error", error.what()}});
    }
  }
  page->set_phase(journal::Phase::done, 0);
}

}  // namespace lockstep::verbs
