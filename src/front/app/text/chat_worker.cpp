// Two pipes and a process.
#include "front/app/text/chat_worker.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

base::Pipe new_pipe() {
  if (auto made = base::make_pipe(O_CLOEXEC)) return std::move(*made);
  throw base::machine_error("chat", "cannot make a pipe: {}.", std::strerror(errno));
}

}  // namespace

LineReader::Got LineReader::next(std::string& line) {
  for (;;) {
    if (const auto end = rest_.find('\n'); end != std::string::npos) {
      line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return Got::line;
    }
    if (ended_) {
      if (rest_.empty()) return Got::end;
      line = std::exchange(rest_, "");  // the last line may lack its end
      return Got::line;
    }
    char bytes[4096];
    const auto count = ::read(descriptor_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return Got::interrupt;
    if (count <= 0)
      ended_ = true;
    else
      rest_.append(bytes, static_cast<std::size_t>(count));
  }
}

ChatWorker::ChatWorker(launch::Command command, base::SignalFlag& interrupt) : interrupt_(interrupt) {
  base::Pipe questions = new_pipe(), answers = new_pipe();
  to_ = std::move(questions.write);
  from_ = std::move(answers.read);
  lines_.emplace(from_.number());
  command.input = questions.read.number();
  command.output = answers.write.number();
  child_.emplace(launch::Child::start(command));
  questions.read.close();
  answers.write.close();
  receive();  // "ready"
}

ChatWorker::~ChatWorker() {
  to_.close();
  from_.close();
  if (child_) child_->wait(5);
}

Json ChatWorker::receive() {
  for (std::string line;;) {
    if (interrupt_.take()) child_->send(SIGINT);  // also one that came while nothing was being read
    switch (lines_->next(line)) {
      case LineReader::Got::line:
        if (auto said = base::json_if_any(line); said && said->is_object()) return std::move(*said);
        break;  // a library's words: NCCL's, say
      case LineReader::Got::interrupt: break;
      case LineReader::Got::end: {
        child_->wait(10);
        const auto end = child_->end().value_or(launch::End{});
        // What a person can mend, the worker has said on standard error.
        const auto code = end.signal == 0 && end.exit_code != 0 ? base::ExitCode(end.exit_code) : base::ExitCode::run;
        throw base::UserError(code, "chat", fmt::format("the worker {}.", launch::in_words(end)));
      }
    }
  }
}

ChatWorker::Answer ChatWorker::ask(const Json& messages, const std::function<void(const std::string&)>& on_text) {
  const std::string question = Json{{"messages", messages}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (std::size_t sent = 0; sent < question.size();) {
    const auto count = ::write(to_.number(), question.data() + sent, question.size() - sent);
    if (count < 0 && errno != EINTR) break;  // receive() says how it ended
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
  Answer answer;
  for (;;) {
    const Json line = receive();
    if (line.contains("text")) {
      const auto piece = line["text"].get<std::string>();
      answer.text += piece;
      on_text(piece);
    } else if (line.contains("error")) {
      answer.finish = "error";
      answer.error = line["error"].get<std::string>();
      return answer;
    } else if (line.contains("finish")) {
      answer.finish = line["finish"].get<std::string>();
      return answer;
    }
  }
}

}  // namespace lockstep::app
