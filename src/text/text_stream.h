// Text that comes token by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/language.h"

namespace lockstep::text {

// The text of one sequence while its tokens come. Gives out whole characters, and nothing that may turn out to begin a stop string.
class TextStream {
 public:
  TextStream(const Language& language, std::span<const std::int32_t> prompt, std::span<const std::string> stops);

  // What is certain now.
  std::string push(std::int32_t token);
  // What was held back: nothing follows.
  std::string finish();
  // A stop string was met; the text ends before it.
  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }

 private:
  std::string read_new(bool all);
  std::string give(std::string piece);

  const Language* language_;
  std::span<const std::string> stops_;
  std::vector<std::int32_t> tokens_;   // of the prompt's end and everything since
  std::size_t before_ = 0, read_ = 0;  // tokens [before_, read_) are context, those behind have not been given out
  std::string held_, text_;
  bool stopped_ = false;
};

}  // namespace lockstep::text
