// Questions go in as JSON lines, answers come out piece by piece.
#include "front/serve/children/chats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash/fresh.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "base/text.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr double load_s = 300, answer_s = 600;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Chats::Chat::~Chat() {
  if (process) process->interrupt();
  if (answering.joinable()) answering.join();
}

Chats::~Chats() {
  base::Lock lock(mutex_);
  chats_.clear();
}

std::vector<std::string> Chats::arguments_of(const Json& wish) const {
  std::vector<std::string> words = {"chat", "--json"};
  if (const std::string run = wish.value("run", ""); !run.empty()) words.insert(words.end(), {"--run", folders_.run(run).string()});
  std::map<std::string, std::string> paths;
  for (const auto& [name, flag, key] : {std::tuple{"model", "--model", "model.path"}, {"adapter", "--adapter", "lora.adapters"}}) {
    const std::string path = wish.value(name, "");
    if (path.empty()) continue;
    paths[key] = path;
    words.insert(words.end(), {flag, path});
  }
  folders_.expect_allowed(paths);
  for (const auto& [name, flag] :
       {std::pair{"temperature", "--temperature"}, {"top_p", "--top-p"}, {"max_tokens", "--max-tokens"}, {"seed", "--seed"}}) {
    const auto value = wish.find(name);
    if (value == wish.end()) continue;
    if (!value->is_number()) throw base::usage_error("chat", "{} must be a number.", name);
    words.insert(words.end(), {flag, value->dump()});
  }
  if (wish.value("shard", false)) words.emplace_back("--shard");
  return words;
}

std::string Chats::open(const Json& wish) {
  auto chat = std::make_shared<Chat>();
  chat->process = std::make_unique<Process>(arguments_of(wish));
  const auto ready = chat->process->read_line(load_s);  // "ready"
  if (!ready) {
    const std::string complaints = base::trim(chat->process->complaints());
    throw base::usage_error("chat", "{}", complaints.empty() ? "the model could not be loaded" : complaints);
  }
  chat->used_ns = base::now_ns();
  std::shared_ptr<Chat> leaves;  // ends outside the lock
  base::Lock lock(mutex_);
  if (chats_.size() >= most) {
    const auto oldest =
        std::min_element(chats_.begin(), chats_.end(), [](const auto& a, const auto& b) { return a.second->used_ns < b.second->used_ns; });
    leaves = oldest->second;
    chats_.erase(oldest);
  }
  const std::string id = base::fresh_id(2);
  chats_.emplace(id, std::move(chat));
  return id;
}

std::shared_ptr<Chats::Chat> Chats::find(const std::string& id) {
  base::Lock lock(mutex_);
  const auto found = chats_.find(id);
  return found == chats_.end() ? nullptr : found->second;
}

std::shared_ptr<http::Stream> Chats::ask(const std::string& id, const Json& messages) {
  const auto chat = find(id);
  if (!chat) return nullptr;
  auto stream = std::make_shared<http::Stream>();
  if (chat->answers.exchange(true)) throw base::usage_error("chat", "the model is still answering. Stop that first.");
  if (chat->answering.joinable()) chat->answering.join();
  chat->used_ns = base::now_ns();
  const std::string question = dump({{"messages", messages}}) + "\n";
  chat->answering = base::quiet_thread([chat = chat.get(), stream, question] {
    answer(*chat, question, *stream);
    chat->answers = false;
    stream->end();
  });
  return stream;
}

void Chats::answer(Chat& chat, const std::string& question, http::Stream& stream) {
  Process& process = *chat.process;
  bool asked_to_stop = false;
  if (process.write(question)) {
    const std::int64_t begun = base::now_ns();
    while (base::seconds_since(begun) < answer_s) {
      const auto line = process.read_line(0.5);
      if (!stream.open() && !asked_to_stop) {  // nobody listens any more
        process.interrupt();
        asked_to_stop = true;
      }
      if (!line) {
        if (process.ended()) break;
        continue;
      }
      const Json json = base::json_if_any(*line).value_or(nullptr);
      if (!json.is_object()) continue;
      if (json.contains("text"))
        stream.push("text", dump(json["text"]));
      else if (json.contains("finish") || json.contains("error"))
        return stream.push("end", dump(json));
    }
  }
  const std::string complaints = base::trim(process.complaints());
  stream.push("end", dump({{"error", complaints.empty() ? "the model's process has ended" : complaints}}));
}

void Chats::stop(const std::string& id) {
  if (const auto chat = find(id)) chat->process->interrupt();
}

void Chats::close(const std::string& id) {
  std::shared_ptr<Chat> leaves;
  base::Lock lock(mutex_);
  const auto found = chats_.find(id);
  if (found == chats_.end()) return;
  leaves = found->second;
  chats_.erase(found);
}

}  // namespace lockstep::serve
