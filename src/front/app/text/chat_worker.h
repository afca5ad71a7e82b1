// The worker of a conversation: started once, asked turn by turn over JSON lines.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file/descriptor.h"
#include "base/signal_flag.h"
#include "front/launch/environment.h"
#include "front/launch/process.h"

namespace lockstep::app {

// Bytes of a descriptor as lines.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}
  enum class Got { line, interrupt, end };
  Got next(std::string& line);

 private:
  int descriptor_;
  std::string rest_;
  bool ended_ = false;
};

class ChatWorker {
 public:
  // command: what serves a conversation, a worker or `lockstep chat --json`. interrupt: Ctrl-C, by which reads are interrupted. Blocks
  // until the model is loaded; UserError where it cannot be.
  ChatWorker(launch::Command command, base::SignalFlag& interrupt);
  ~ChatWorker();
  ChatWorker(const ChatWorker&) = delete;

  struct Answer {
    std::string text;
    std::string finish;  // "end", "length", "context", "interrupted", ...; "error": see `error`
    std::string error;
  };
  // on_text hears the answer while it comes; Ctrl-C ends it.
  Answer ask(const nlohmann::ordered_json& messages, const std::function<void(const std::string&)>& on_text);

 private:
  nlohmann::ordered_json receive();

  base::SignalFlag& interrupt_;
  base::IgnoredSignal pipe_{SIGPIPE};  // a worker that died is noticed by its silence
  std::optional<launch::Child> child_;
  base::Descriptor to_, from_;
  std::optional<LineReader> lines_;
};

}  // namespace lockstep::app
