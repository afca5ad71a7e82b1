// The requests of `lockstep generate` as a worker does them.
#include "rank/verbs/generate.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/file/json_lines.h"
#include "base/json.h"
#include "base/text.h"
#include "rank/verbs/together.h"
#include "text/terminal.h"

namespace lockstep::verbs {
namespace {

using Json = nlohmann::ordered_json;

double number(const Arguments& arguments, const char* name, double otherwise) {
  const auto found = arguments.find(name);
  if (found == arguments.end()) return otherwise;
  const auto value = base::parse_number(found->second);
  if (!value) throw base::usage_error("generate", "--{} {} is not a number.", name, found->second);
  return *value;
}

Json conversation(const std::string& system, const std::string& user) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", user}});
  return messages;
}

task::GenerateOptions options_for(const GenerateRequest& request, const TextModel& model) {
  task::GenerateOptions options = request.options;
  options.context = model.context();
  return options;
}

void expect_chat(const TextModel& model, const char* what) {
  if (model.language->has_template()) return;
  throw base::usage_error("generate", "this model has no chat template, so {} has nothing to render with. Use --prompt.", what);
}

// A line of the file: {"prompt": ...} or {"messages": [...]}.
std::vector<std::int32_t> encode_line(const Json& object, const std::string& system, const text::Language& language) {
  if (object.contains("prompt")) return language.encode_prompt(object["prompt"].get<std::string>());
  Json messages = object.at("messages");
  if (!system.empty() && (messages.empty() || messages[0].value("role", "") != "system"))
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
  return language.encode_chat(messages);
}

std::vector<task::Prompt> read_prompts(const GenerateRequest& request, const TextModel& model) {
  std::vector<task::Prompt> prompts;
  for (const auto& [number, line] : base::read_json_lines(request.file, "generate")) {
    try {
      prompts.push_back({encode_line(line, request.system, *model.language), prompts.size()});
    } catch (const std::exception& error) {
      throw base::data_error("generate", "{}, line {}: {}", request.file.string(), number, error.what());
    }
    if (std::int64_t(prompts.back().tokens.size()) >= model.context()) {
      throw base::data_error("generate", "{}, line {}: a prompt of {} tokens leaves no room for an answer: the model reads {}. Shorten it.",
                             request.file.string(), number, prompts.back().tokens.size(), model.context());
    }
  }
  return prompts;
}

}  // namespace

GenerateRequest parse_generate_request(const Arguments& arguments, at::Device device) {
  GenerateRequest request;
  request.source = {.run = argument(arguments, "run"),
                    .checkpoint = argument(arguments, "checkpoint"),
                    .model = argument(arguments, "model"),
                    .adapter = argument(arguments, "adapter"),
                    .dtype = argument(arguments, "dtype"),
                    .load_in_4bit = argument(arguments, "load-in-4bit") == "1",
                    .load_in_8bit = argument(arguments, "load-in-8bit") == "1"};
  request.is_chat = arguments.contains("chat");
  request.prompt = request.is_chat ? arguments.at("chat") : argument(arguments, "prompt");
  request.system = argument(arguments, "system");
  request.stream = argument(arguments, "stream", "1") == "1";
  request.file = argument(arguments, "file");
  request.parts = argument(arguments, "parts");
  request.shard = argument(arguments, "shard") == "1";
  request.batch_size = static_cast<std::int64_t>(number(arguments, "batch-size", 8));
  request.device = device;
  task::GenerateOptions& options = request.options;
  options.max_tokens = static_cast<std::int64_t>(number(arguments, "max-tokens", 80));
  options.sampling = {.temperature = number(arguments, "temperature", 0.7),
                      .top_k = static_cast<std::int64_t>(number(arguments, "top-k", 0)),
                      .top_p = number(arguments, "top-p", 1),
                      .min_p = number(arguments, "min-p", 0),
                      .repetition_penalty = number(arguments, "repetition-penalty", 1),
                      .seed = static_cast<std::int64_t>(number(arguments, "seed", 0))};
  if (arguments.contains("stop")) options.stops = base::parse_json(arguments.at("stop")).get<std::vector<std::string>>();
  return request;
}

void generate_one(const GenerateRequest& request) {
  const TextModel model = open_text_model(request.source, request.device);
  if (request.is_chat) expect_chat(model, "--chat");
  const task::Prompt prompt{request.is_chat ? model.language->encode_chat(conversation(request.system, request.prompt))
                                            : model.language->encode_prompt(request.prompt)};
  task::Generator generator(*model.decoder, *model.language, request.device, options_for(request, model));
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const auto show = [&](const std::string& piece) { std::cout << (terminal ? text::harmless(piece) : piece) << std::flush; };
  if (!request.is_chat) show(request.prompt);
  const task::OnText as_it_comes = [&](std::size_t, const std::string& piece) {
    show(piece);
    return true;
  };
  const auto completion = generator.run({&prompt, 1}, request.stream ? as_it_comes : task::OnText());
  if (!request.stream) show(completion.front().text);
  std::cout << std::endl;
}

void generate_file(const GenerateRequest& request, const comm::Place& place, const std::shared_ptr<journal::PageWriter>& page) {
  std::optional<Together> together;  // first, so that it ends last
  if (request.shard && place.world_size > 1) together.emplace(place, request.device, page);
  page->set_phase(journal::Phase::loading, 0);
  const TextModel model = open_text_model(request.source, request.device, together ? &together->mesh() : nullptr);
  const std::vector<task::Prompt> prompts = read_prompts(request, model);
  // Prompts of like length together, the longest first: little is filled up, and too large a batch is known at once.
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prompts[a].tokens.size() > prompts[b].tokens.size(); });

  std::ofstream part(request.parts / (std::to_string(place.rank) + ".jsonl"), std::ios::binary);
  task::GenerateOptions options = options_for(request, model);
  if (together) {
    together->meet("loading a model");
    options.follow = together->follow();
  }
  task::Generator generator(*model.decoder, *model.language, request.device, options);
  const bool writes = !together || together->leads();
  const auto size = static_cast<std::size_t>(request.batch_size);
  std::int64_t done = 0;
  for (std::size_t first = 0, number = 0; first < order.size(); first += size, ++number) {
    if (!together && number % static_cast<std::size_t>(place.world_size) != static_cast<std::size_t>(place.rank)) continue;
    std::vector<task::Prompt> batch;
    for (std::size_t i = first; i < std::min(first + size, order.size()); ++i) batch.push_back(prompts[order[i]]);
    page->set_phase(journal::Phase::sampling, done);
    const auto completions = generator.run(batch, [&](std::size_t, const std::string&) {
      page->set_phase(journal::Phase::sampling, done);  // a sign of life
      return true;
    });
    for (std::size_t i = 0; writes && i < batch.size(); ++i) {
      part << Json{{"line", batch[i].key}, {"completion", completions[i].text}, {"finish", task::name_of(completions[i].finish)}}.dump()
           << "\n";
    }
    if (writes) done += static_cast<std::int64_t>(batch.size());
    page->set_phase(journal::Phase::sampling, done);
  }
  part.flush();
  if (!part) throw base::data_error("generate", "{} cannot be written: is the disk full?", request.parts.string());
  page->set_phase(journal::Phase::done, done);
}

}  // namespace lockstep::verbs
