// Paths are judged with all links followed, so no name leads out.
#include "front/serve/folders.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/text.h"
#include "base/utf8.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;

fs::path real(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);  // an error where it is empty
  const fs::path followed = error ? fs::path() : fs::weakly_canonical(whole, error);
  return error ? fs::path() : followed;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

}  // namespace

const std::vector<std::string>& path_settings() {
  static const std::vector<std::string> keys = {"model.path",         "data.path",      "data.validation_path",   "data.tokenizer",
                                                "data.chat_template", "data.cache_dir", "trainer.checkpoint_dir", "checkpoint.resume",
                                                "lora.adapters"};
  return keys;
}

Folders::Folders(fs::path output, const std::vector<std::string>& allowed) : output_(std::move(output)) {
  base::real_files().create_directories(output_);
  allowed_.push_back(real(output_));
  for (const std::string& folder : allowed) {
    std::error_code error;
    base::refuse_if_hidden(folder);
    if (!fs::is_directory(folder, error)) throw base::usage_error("ui", "--folder {}: there is no such folder.", folder);
    allowed_.push_back(real(folder));
  }
}

bool Folders::allows(const fs::path& path) const {
  const fs::path followed = real(path);
  return !followed.empty() &&
         std::any_of(allowed_.begin(), allowed_.end(), [&](const fs::path& folder) { return lies_in(followed, folder); });
}

base::UserError Folders::outside(const std::string& what) const {
  std::vector<std::string> names;
  for (const fs::path& folder : allowed_) names.push_back(folder.string());
  return base::usage_error("ui", "{} lies outside the folders that this page may use ({}). Start it with --folder DIR to allow another.",
                           what, base::join(names, ", "));
}

void Folders::expect_allowed(const std::map<std::string, std::string>& settings) const {
  for (const auto& [key, value] : settings) {
    if (key == "output")
      throw base::usage_error("ui", "output = {}: this page's runs lie in {}. Start it with --output DIR for others.", value,
                              output_.string());
    std::error_code error;
    if (key == "name" && !value.empty() && !is_plain_name(value) && !(is_name(value) && fs::is_directory(output_ / value, error)))
      throw base::usage_error("ui", "name = {} must be a plain name: letters, digits, '.', '-' and '_', at most 120 of them.", value);
    if (value.empty() || std::find(path_settings().begin(), path_settings().end(), key) == path_settings().end()) continue;
    if (key == "checkpoint.resume" && value == "auto") continue;
    if (key == "data.chat_template" && value.find("{") != std::string::npos) continue;  // the template itself
    for (const std::string& one : base::split(value, ',')) {
      if (!allows(base::trim(one))) throw outside(fmt::format("{} = {}", key, value));
    }
  }
}

bool Folders::is_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name[0] != '-' && !base::first_invalid_utf8(name) &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '/' || c == '\\'; });
}

bool Folders::is_plain_name(const std::string& name) {
  return is_name(name) && name.size() <= 120 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
         });
}

fs::path Folders::run(const std::string& name) const {
  const fs::path folder = output_ / name;
  std::error_code error;
  if (!is_name(name) || !fs::is_directory(folder, error) || !allows(folder))
    throw base::usage_error("ui", "there is no run {} in {}.", name.substr(0, 120), output_.string());
  return folder;
}

}  // namespace lockstep::serve
