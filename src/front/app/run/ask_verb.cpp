// `lockstep ask`: has a run that trains save, evaluate, sample or stop, and says what came of it.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/run_config.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/job/ask.h"
#include "text/terminal.h"

namespace lockstep::app {
namespace {

struct AskRequest {
  std::string run, output = config::RunConfig().output;
  std::vector<std::string> wishes;
  double timeout_s = 600;
  bool json = false;
};

void describe(CLI::App& app, AskRequest& request) {
  app.add_option("RUN", request.run, "a run's folder, or its name under --output")->required();
  app.add_option("WISH", request.wishes,
                 "save: a checkpoint; evaluate: the loss on validation data; sample: texts by the model; stop: save and end. Several are "
                 "carried out after the same step")
      ->required();
  app.add_option("--output", request.output, "where runs lie")->capture_default_str();
  app.add_option("--timeout", request.timeout_s, "seconds to wait for the answer")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_flag("--json", request.json, "one line of JSON an answer");
}

std::vector<journal::Wish> wishes_of(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const journal::Wish wish : journal::all_wishes) names.emplace_back(journal::name_of(wish));
  std::vector<journal::Wish> wishes;
  for (const std::string& word : words) {
    const auto wish = journal::wish_named(word);
    if (!wish) {
      const auto near = base::nearest(word, names);
      throw base::usage_error("ask", "'{}' is nothing that a run can be asked for.{} There are stop, save, evaluate and sample.", word,
                              near ? fmt::format(" Did you mean {}?", *near) : "");
    }
    wishes.push_back(*wish);
  }
  return wishes;
}

std::string to_json(const job::Answer& answer) {
  nlohmann::ordered_json json = {{"wish", journal::name_of(answer.wish)}, {"step", answer.step}, {"done", answer.done}};
  if (!answer.reason.empty()) json["reason"] = answer.reason;
  if (!answer.checkpoint.empty()) json["checkpoint"] = answer.checkpoint;
  if (answer.loss) json["eval_loss"] = *answer.loss;
  for (const auto& sample : answer.samples) json["samples"].push_back({{"prompt", sample.prompt}, {"text", sample.text}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_text(const job::Answer& answer) {
  const std::string step = fmt::format("step {}  ", answer.step);
  if (!answer.done) return fmt::format("{}{}: not done: {}\n", step, journal::name_of(answer.wish), answer.reason);
  switch (answer.wish) {
    case journal::Wish::save: return fmt::format("{}checkpoint {}\n", step, answer.checkpoint);
    case journal::Wish::stop: return fmt::format("{}stopped; everything is saved in {}\n", step, answer.checkpoint);
    case journal::Wish::evaluate:
      return fmt::format("{}evaluation loss {}\n", step, answer.loss ? fmt::format("{:.4f}", *answer.loss) : "not finite");
    case journal::Wish::sample: break;
  }
  std::string text;
  for (const auto& sample : answer.samples) {
    text += sample.text.starts_with(sample.prompt) ? step + "sample:\n"
                                                   : fmt::format("{}sample, asked: {}\n", step, text::harmless(sample.prompt));
    for (const auto& line : base::split(sample.text, '\n')) text += "    " + text::harmless(line) + "\n";
  }
  return text;
}

}  // namespace

int run_ask_verb(std::span<const std::string> args) {
  AskRequest request;
  CLI::App app{
      "Asks a run that trains to save, evaluate, sample or stop, and waits until it is done. All ranks act after the same step, and the "
      "numbers of training are those of a run that nobody asked.",
      "lockstep ask"};
  describe(app, request);
  if (!read_flags(app, args, "ask")) return 0;
  const std::vector<journal::Wish> wishes = wishes_of(request.wishes);
  bool all_done = true;
  for (const job::Answer& answer : job::ask(job::find_run(request.run, request.output), wishes, request.timeout_s)) {
    std::fputs((request.json ? to_json(answer) + "\n" : to_text(answer)).c_str(), stdout);
    all_done = all_done && answer.done;
  }
  return all_done ? 0 : static_cast<int>(base::ExitCode::usage);
}

}  // namespace lockstep::app
