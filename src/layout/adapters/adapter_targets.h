// Which matrices an adapter stands beside, with what rank and scale: PEFT's rules over names such as "model.layers.0.self_attn.q_proj".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/python_regex.h"
#include "config/run_config.h"
#include "layout/decoder.h"

namespace lockstep::layout {

inline constexpr std::string_view embedding_module = "model.embed_tokens";
inline constexpr std::string_view head_module = "lm_head";
bool is_in_block(std::string_view module);

// What stands before a regular expression in lora.target_modules and lora.exclude_modules, where PEFT has a text in place of a list.
inline constexpr std::string_view regex_mark = "re:";

class AdapterTargets {
 public:
  // Throws UserError(ExitCode::usage) where a pattern is none.
  explicit AdapterTargets(const config::LoraConfig& lora);

  bool contains(const std::string& module) const;      // has an adapter
  bool saves(const std::string& module) const;         // is trained whole
  std::int64_t rank(const std::string& module) const;  // of its adapter
  double scale(const std::string& module) const;       // what its adapter's product is multiplied with

 private:
  // Names, or one regular expression.
  struct Names {
    std::vector<std::string> listed;
    std::vector<base::PythonRegex> patterns;
    bool all_linear = false;
  };
  struct Exception {
    base::PythonRegex pattern;
    double value;
  };
  static Names names_of(std::string_view key, const std::vector<std::string>& given);
  static std::vector<Exception> exceptions_of(std::string_view key, const std::vector<std::string>& given);
  static double value_of(const std::vector<Exception>& exceptions, const std::string& module, double otherwise);

  const config::LoraConfig lora_;
  Names targets_, excluded_;
  std::vector<Exception> ranks_, alphas_;
};

// What is wrong with lora's targets for this model, where a person chose them: one sentence for each, with the key that it is about.
struct TargetMistake {
  std::string_view key;
  std::string text;
};
std::vector<TargetMistake> target_mistakes(const config::ModelConfig& model, const config::LoraConfig& lora);

}  // namespace lockstep::layout
