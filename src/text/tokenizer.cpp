// The Tokenizer over the Rust library: conversions and words for its errors.
#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/refusal.h"
#include "base/json.h"
#include "base/log.h"
#include "text/native_call.h"
#include "text/read_file.h"

namespace lockstep::text {
namespace {

namespace fs = std::filesystem;

struct TokenizerFreer {
  void operator()(lockstep_tokenizer* tokenizer) const { lockstep_tokenizer_free(tokenizer); }
};

std::vector<std::int32_t> signed_numbers(std::span<const std::uint32_t> numbers) { return {numbers.begin(), numbers.end()}; }

}  // namespace

struct Tokenizer::Impl {
  fs::path path;
  std::unique_ptr<lockstep_tokenizer, TokenizerFreer> handle;
  std::int64_t size = 0;
  std::vector<AddedToken> added;
  std::unordered_map<std::int32_t, bool> special;

  base::UserError failed(std::string_view what, const NativeBytes& error) const {
    return base::data_error("text", "{}: {}: {}.", path.string(), what, error.view());
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

fs::path tokenizer_file(const fs::path& folder_or_file) {
  std::error_code ignored;
  const bool folder = fs::is_directory(folder_or_file, ignored);
  const fs::path path = folder ? folder_or_file / "tokenizer.json" : folder_or_file;
  if (!fs::exists(path, ignored)) {
    base::refuse_if_hidden(path);
    throw base::data_error(
        "text",
        "{} does not exist. A tokenizer is a folder with a tokenizer.json, or that file; `lockstep data "
        "train-tokenizer` makes one.{}",
        path.string(),
        folder && fs::exists(folder_or_file / "tokenizer.model", ignored)
            ? " This folder has a tokenizer.model alone: save it once with transformers, which writes tokenizer.json too."
            : "");
  }
  return path;
}

const Tokenizer& LazyTokenizer::get() const {
  if (const Tokenizer* ready = ready_.load(std::memory_order_acquire)) return *ready;
  const base::Lock lock(parsing_);
  if (!parsed_) parsed_ = Tokenizer::open(file_);
  ready_.store(parsed_.get(), std::memory_order_release);
  return *parsed_;
}

std::shared_ptr<const Tokenizer> Tokenizer::open(const fs::path& folder_or_file) {
  auto impl = std::make_unique<Impl>();
  impl->path = tokenizer_file(folder_or_file);
  const std::int64_t start = base::now_ns();
  const std::string json = read_file(impl->path);
  NativeBytes error, description;
  lockstep_tokenizer* handle = nullptr;
  if (!lockstep_tokenizer_open(view_of(json), &handle, error.out())) throw impl->failed("this is no tokenizer that can be used", error);
  impl->handle.reset(handle);
  if (!lockstep_tokenizer_describe(handle, description.out(), error.out())) throw impl->failed("its tokens cannot be listed", error);
  const auto facts = base::parse_json(description.view());
  impl->size = facts["size"].get<std::int64_t>();
  for (const auto& token : facts["added"]) {
    impl->added.push_back({token["id"].get<std::int32_t>(), token["content"].get<std::string>(), token["special"].get<bool>()});
    impl->special[impl->added.back().number] = impl->added.back().special;
  }
  if (std::getenv("LOCKSTEP_TRACE") != nullptr)
    base::log_info("parsed {}: {} tokens in {:.3f} s", impl->path.string(), impl->size, base::seconds_since(start));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  NativeNumbers tokens;
  NativeBytes error;
  if (!lockstep_tokenizer_encode(impl_->handle.get(), view_of(text), special == SpecialTokens::add, tokens.out(), nullptr, error.out()))
    throw impl_->failed("a text cannot be turned into tokens", error);
  return signed_numbers(tokens.all());
}

Encoded Tokenizer::encode_with_spans(std::string_view text, SpecialTokens special) const {
  NativeNumbers tokens, spans;
  NativeBytes error;
  if (!lockstep_tokenizer_encode(impl_->handle.get(), view_of(text), special == SpecialTokens::add, tokens.out(), spans.out(), error.out()))
    throw impl_->failed("a text cannot be turned into tokens", error);
  Encoded result{.tokens = signed_numbers(tokens.all())};
  result.spans.reserve(result.tokens.size());
  for (std::size_t i = 0; i < result.tokens.size(); ++i) result.spans.push_back({spans.all()[2 * i], spans.all()[2 * i + 1]});
  return result;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens, bool skip_special) const {
  NativeBytes text, error;
  const std::vector<std::uint32_t> numbers(tokens.begin(), tokens.end());
  if (!lockstep_tokenizer_decode(impl_->handle.get(), numbers.data(), numbers.size(), skip_special, text.out(), error.out()))
    throw impl_->failed("tokens cannot be turned into text", error);
  return text.text();
}

std::int64_t Tokenizer::size() const { return impl_->size; }

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  std::uint32_t number = 0;
  if (!lockstep_tokenizer_find(impl_->handle.get(), view_of(token), &number)) return std::nullopt;
  return static_cast<std::int32_t>(number);
}

std::string Tokenizer::token(std::int32_t number) const {
  NativeBytes token;
  if (number < 0 || !lockstep_tokenizer_token(impl_->handle.get(), static_cast<std::uint32_t>(number), token.out())) return {};
  return token.text();
}

bool Tokenizer::is_special(std::int32_t number) const {
  const auto found = impl_->special.find(number);
  return found != impl_->special.end() && found->second;
}

std::span<const AddedToken> Tokenizer::added_tokens() const { return impl_->added; }

}  // namespace lockstep::text
