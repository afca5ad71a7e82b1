// Conversations with models: each a `lockstep chat --json` that stays loaded.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/mutex.h"
#include "front/serve/folders.h"
#include "front/http/stream.h"
#include "front/serve/children/process.h"

namespace lockstep::serve {

// Any thread.
class Chats {
 public:
  explicit Chats(const Folders& folders) : folders_(folders) {}
  ~Chats();
  Chats(const Chats&) = delete;
  Chats& operator=(const Chats&) = delete;

  // {"run": NAME} or {"model": DIR, "adapter": DIR}, how it chooses its words, and "shard" where all GPUs hold it together. Blocks until
  // the model is loaded; its id. UserError in the program's own words where it cannot be. The conversation that was silent longest gives
  // way to a fifth.
  std::string open(const nlohmann::ordered_json& wish);
  // Events "text" (a piece) and at last "end" ({"finish"} or {"error"}). Nothing where there is no such conversation.
  std::shared_ptr<http::Stream> ask(const std::string& id, const nlohmann::ordered_json& messages);
  void stop(const std::string& id);  // the answer under way
  void close(const std::string& id);

 private:
  static constexpr std::size_t most = 4;
  struct Chat {
    std::unique_ptr<Process> process;
    std::thread answering;
    std::atomic<bool> answers = false;  // right now
    std::atomic<std::int64_t> used_ns = 0;
    ~Chat();
  };
  static void answer(Chat& chat, const std::string& question, http::Stream& stream);
  std::vector<std::string> arguments_of(const nlohmann::ordered_json& wish) const;
  std::shared_ptr<Chat> find(const std::string& id);

  const Folders& folders_;
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Chat>> chats_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::serve
