// PEFT's rules for names: lists match whole names and their ends, a text is a regular expression, exceptions are matched at the end.
#include "layout/adapters/adapter_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::layout {
namespace {

constexpr std::string_view all_linear = "all-linear";
constexpr std::string_view block_prefix = "model.layers.";

// The whole name, or its end after a dot.
bool names(std::string_view target, std::string_view module) {
  return module == target ||
         (module.size() > target.size() && module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
}

bool is_one_of(const std::vector<std::string>& targets, std::string_view module) {
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) { return names(target, module); });
}

// The block that a module's name has, as PEFT finds it: the first number between dots.
std::optional<std::int64_t> block_of(std::string_view module) {
  if (!is_in_block(module)) return std::nullopt;
  const std::string_view rest = module.substr(block_prefix.size());
  return base::parse_integer(rest.substr(0, rest.find('.')));
}

base::PythonRegex compiled(std::string_view key, const std::string& pattern, const std::string& shown) {
  try {
    return base::PythonRegex(pattern);
  } catch (const base::RegexError& error) {
    throw base::usage_error("lora", "{}: {} is a regular expression that cannot be used: {}.", key, shown, error.what());
  }
}

bool any_matches(const std::vector<base::PythonRegex>& patterns, const std::string& module) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const base::PythonRegex& pattern) { return pattern.matches_all_of(module); });
}

}  // namespace

bool is_in_block(std::string_view module) { return module.starts_with(block_prefix); }

AdapterTargets::Names AdapterTargets::names_of(std::string_view key, const std::vector<std::string>& given) {
  Names found;
  for (const std::string& one : given) {
    if (one == all_linear)
      found.all_linear = true;
    else if (one.starts_with(regex_mark))
      found.patterns.push_back(compiled(key, one.substr(regex_mark.size()), one));
    else
      found.listed.push_back(one);
  }
  return found;
}

std::vector<AdapterTargets::Exception> AdapterTargets::exceptions_of(std::string_view key, const std::vector<std::string>& given) {
  std::vector<Exception> found;
  for (const std::string& one : given) {
    const std::size_t equals = one.rfind('=');
    const auto value = equals == one.npos ? std::nullopt : base::parse_number(one.substr(equals + 1));
    const bool good = value && (key == "lora.rank_pattern" ? *value == std::trunc(*value) && *value >= 1 && *value <= 4096
                                                           : std::isfinite(*value) && *value > 0);
    if (!good) {
      throw base::usage_error("lora", "{}: {} must be NAME={}. For example q_proj=8.", key, one,
                              key == "lora.rank_pattern" ? "RANK, a whole number from 1 to 4096" : "ALPHA, a number above 0");
    }
    const std::string name = one.substr(0, equals);
    found.push_back({compiled(key, fmt::format(R"((.*\.)?({})$)", name), name), *value});
  }
  return found;
}

double AdapterTargets::value_of(const std::vector<Exception>& exceptions, const std::string& module, double otherwise) {
  for (const Exception& one : exceptions)
    if (one.pattern.matches_all_of(module)) return one.value;
  return otherwise;
}

AdapterTargets::AdapterTargets(const config::LoraConfig& lora)
    : lora_(lora),
      targets_(names_of("lora.target_modules", lora.target_modules)),
      excluded_(names_of("lora.exclude_modules", lora.exclude_modules)),
      ranks_(exceptions_of("lora.rank_pattern", lora.rank_pattern)),
      alphas_(exceptions_of("lora.alpha_pattern", lora.alpha_pattern)) {}

bool AdapterTargets::contains(const std::string& module) const {
  if (is_one_of(excluded_.listed, module) || any_matches(excluded_.patterns, module) || saves(module)) return false;
  if (any_matches(targets_.patterns, module)) return true;
  if (std::find(targets_.listed.begin(), targets_.listed.end(), module) != targets_.listed.end()) return true;  // whatever its block
  if (!(targets_.all_linear && is_in_block(module)) && !is_one_of(targets_.listed, module)) return false;
  const auto& blocks = lora_.layers_to_transform;
  if (blocks.empty()) return true;
  const auto block = block_of(module);
  return block && std::find(blocks.begin(), blocks.end(), *block) != blocks.end();
}

bool AdapterTargets::saves(const std::string& module) const { return is_one_of(lora_.modules_to_save, module); }

std::int64_t AdapterTargets::rank(const std::string& module) const {
  return static_cast<std::int64_t>(value_of(ranks_, module, static_cast<double>(lora_.rank)));
}

double AdapterTargets::scale(const std::string& module) const {
  const double alpha = value_of(alphas_, module, lora_.alpha > 0 ? lora_.alpha : 2.0 * static_cast<double>(lora_.rank));
  const auto rank = static_cast<double>(this->rank(module));
  return alpha / (lora_.rslora ? std::sqrt(rank) : rank);
}

std::vector<TargetMistake> target_mistakes(const config::ModelConfig& model, const config::LoraConfig& lora) {
  std::vector<TargetMistake> mistakes;
  const std::vector<Module> modules = modules_of(model);
  const bool has_regex = std::any_of(lora.target_modules.begin(), lora.target_modules.end(),
                                     [](const std::string& target) { return target.starts_with(regex_mark); });
  if (has_regex && lora.target_modules.size() > 1)
    mistakes.push_back(
        {"lora.target_modules", "lora.target_modules has a regular expression (re:) beside other entries. Write one expression."});
  if (has_regex && !lora.layers_to_transform.empty())
    mistakes.push_back(
        {"lora.layers_to_transform",
         "lora.layers_to_transform chooses blocks for names; lora.target_modules is a regular expression (re:), which names its "
         "blocks itself. Use one of them."});
  for (const std::string& target : lora.target_modules) {
    const bool whole = names(target, embedding_module) || names(target, head_module);
    const auto hits = [&](const Module& module) { return is_in_block(module.name) && names(target, module.name); };
    if (target == all_linear || target.starts_with(regex_mark) || std::any_of(modules.begin(), modules.end(), hits)) continue;
    mistakes.push_back({"lora.target_modules",
                        fmt::format("lora.target_modules names {}, which is no matrix of a block. {}", target,
                                    whole ? "Train it whole: lora.modules_to_save."
                                          : "There are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, or all-linear for "
                                            "all of them.")});
  }
  for (const std::string& target : lora.modules_to_save) {
    if (names(target, embedding_module) || names(target, head_module)) continue;
    mistakes.push_back(
        {"lora.modules_to_save", fmt::format("lora.modules_to_save names {}. embed_tokens and lm_head can be trained whole.", target)});
  }
  for (const std::int64_t block : lora.layers_to_transform) {
    if (block < model.num_layers) continue;
    mistakes.push_back(
        {"lora.layers_to_transform",
         fmt::format("lora.layers_to_transform names block {}, but the model has {}, counted from 0.", block, model.num_layers)});
  }
  if (!mistakes.empty()) return mistakes;
  const AdapterTargets targets(lora);
  const auto adapted = [&](const Module& module) { return targets.contains(module.name); };
  if (std::none_of(modules.begin(), modules.end(), adapted)) {
    mistakes.push_back({"lora.target_modules",
                        fmt::format("lora.target_modules = {} matches no matrix of the model.", base::join(lora.target_modules, ", "))});
  }
  for (const Module& module : modules) {
    if (is_in_block(module.name) || !adapted(module)) continue;
    mistakes.push_back(
        {"lora.target_modules", fmt::format("lora.target_modules matches {}, which is no matrix of a block. Leave it out, or "
                                            "train it whole: lora.modules_to_save.",
                                            module.name)});
  }
  return mistakes;
}

}  // namespace lockstep::layout
