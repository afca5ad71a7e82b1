// Training over the Rust library.
#include "text/train.h"

#include <nlohmann/json.hpp>

#include <exception>

#include "base/error.h"
#include "text/native_call.h"

namespace lockstep::text {
namespace {

struct Source {
  const NextText& next;
  std::exception_ptr failure;
};

// Nothing may be thrown through the library: a failure ends the texts, and is thrown when it has returned.
bool next_text(void* state, lockstep_view* text) {
  Source& source = *static_cast<Source*>(state);
  if (source.failure) return false;
  try {
    const auto found = source.next();
    if (found) *text = view_of(*found);
    return found.has_value();
  } catch (...) {
    source.failure = std::current_exception();
    return false;
  }
}

}  // namespace

std::string train_bpe(const TrainOptions& options, const NextText& next) {
  const std::string json =
      nlohmann::json({{"vocab_size", options.vocab_size}, {"min_frequency", options.min_frequency}, {"special", options.special}}).dump();
  Source source{next, nullptr};
  NativeBytes made, error;
  const bool good = lockstep_train_bpe(view_of(json), next_text, &source, made.out(), error.out());
  if (source.failure) std::rethrow_exception(source.failure);
  if (!good) throw base::data_error("text", "a tokenizer could not be trained: {}.", error.view());
  return made.text();
}

}  // namespace lockstep::text
