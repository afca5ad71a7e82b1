// What the page does beside runs: files, data, placements, presets, conversations.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "front/catalog/explained.h"
#include "front/serve/answers.h"
#include "front/serve/form/import.h"
#include "front/serve/page.h"
#include "front/serve/form/paths.h"
#include "front/serve/form/presets.h"
#include "front/serve/form/tools.h"

namespace lockstep::serve {

http::Response Page::import_file(const Call& call) { return json_answer(import_text(call.body.value("text", ""))); }

http::Response Page::slowly(const std::function<http::Response()>& answer) {
  constexpr int most = 3;
  struct Counted {
    std::atomic<int>& count;
    const int others;
    explicit Counted(std::atomic<int>& all) : count(all), others(all.fetch_add(1)) {}
    ~Counted() { count.fetch_sub(1); }
  } const counted(slow_answers_);
  if (counted.others >= most) return http::plain_answer(503, "the page is busy loading models or reading data; try again in a moment.");
  return answer();
}

http::Response Page::inspect(const Call& call) {
  return slowly(
      [&] { return json_answer(inspect_data(folders_, values_in(call.body), std::clamp(call.body.value("samples", 5), 1, 50))); });
}

http::Response Page::placements(const Call& call) {
  const auto gpus = call.body.find("gpus");
  const GpusAsked asked{gpus == call.body.end() ? "8"
                        : gpus->is_string()     ? gpus->get<std::string>()
                                                : gpus->dump(),
                        call.body.value("memory", "")};
  return slowly([&] { return json_answer(plan_placements(folders_, values_in(call.body), asked)); });
}

http::Response Page::paths(const Call& call) { return json_answer(paths_from(folders_, call.request.asked("from"))); }

http::Response Page::presets(const Call&) { return json_answer(list_presets(folders_)); }

http::Response Page::keep_preset(const Call& call) {
  save_preset(folders_, call.name, values_in(call.body));
  return json_answer({{"name", call.name}});
}

http::Response Page::drop_preset(const Call& call) {
  delete_preset(folders_, call.name);
  return json_answer({{"deleted", call.name}});
}

http::Response Page::check_machine(const Call& call) {
  std::vector<std::string> words = {"check", "--json", "--output", folders_.output().string()};
  if (call.body.value("quick", false)) words.emplace_back("--quick");
  return {.type = "text/event-stream", .stream = check_.begin(words, 600)};
}

// Codes and known messages in a text: a log that someone pasted, a report, a code alone.
http::Response Page::explain(const Call& call) {
  Json found = Json::array();
  for (const catalog::Hit& hit : catalog::scan(call.body.value("text", ""))) found.push_back(catalog::explained(hit));
  return json_answer(found);
}

http::Response Page::open_chat(const Call& call) {
  return slowly([&] { return json_answer({{"id", chats_.open(call.body)}}); });
}

http::Response Page::ask_chat(const Call& call) {
  const auto messages = call.body.find("messages");
  if (messages == call.body.end() || !messages->is_array()) throw base::usage_error("ui", "messages must be a list.");
  auto stream = chats_.ask(call.name, *messages);
  if (!stream) return http::plain_answer(404, "this conversation is over; begin another.");
  return {.type = "text/event-stream", .stream = std::move(stream)};
}

http::Response Page::stop_chat(const Call& call) {
  chats_.stop(call.name);
  return json_answer({{"stopped", call.name}});
}

http::Response Page::close_chat(const Call& call) {
  chats_.close(call.name);
  return json_answer({{"closed", call.name}});
}

}  // namespace lockstep::serve
