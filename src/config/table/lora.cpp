// The options of the section `lora`: adapters beside frozen weights.
#include "config/table/option.h"

namespace lockstep::config {

using R = RunConfig;
using L = LoraConfig;

std::vector<Option> lora_options() {
  return {
      option<&R::lora, &L::enabled>({
          .key = "lora.enabled",
          .says = "Train low-rank adapters and leave the model's own weights alone.",
          .aliases = {{"use_lora"}, {"use_peft"}},
          .flags = {"--lora"},
      }),
      option<&R::lora, &L::rank>({
          .key = "lora.rank",
          .says = "Rank of the adapters.",
          .range = between(1, 4096),
          .aliases = {{"r"}, {"lora_r"}, {"lora_rank"}},
          .flags = {"--lora-rank"},
      }),
      option<&R::lora, &L::alpha>({
          .key = "lora.alpha",
          .says = "Adapters count alpha / rank.",
          .range = at_least(0),
          .zero = "twice the rank",
          .aliases = {{"lora_alpha"}},
          .flags = {"--lora-alpha"},
          .example = "32",
      }),
      option<&R::lora, &L::dropout>({
          .key = "lora.dropout",
          .says = "Share of an adapter's inputs that is dropped in training.",
          .range = from_below(0, 1),
          .aliases = {{"lora_dropout"}},
          .flags = {"--lora-dropout"},
      }),
      option<&R::lora, &L::target_modules>({
          .key = "lora.target_modules",
          .says = "Matrices that get an adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, or all-linear; or "
                  "re: and a regular expression that whole names match, such as re:.*\\.layers\\.[0-3]\\..*_proj.",
          .aliases = {{"lora_target_modules"}, {"lora_target"}},
          .example = "[q_proj, v_proj]",
      }),
      option<&R::lora, &L::exclude_modules>({
          .key = "lora.exclude_modules",
          .says = "Matrices that get no adapter although lora.target_modules names them: names, or re: and a regular expression.",
          .zero = "none",
          .example = "[k_proj]",
      }),
      option<&R::lora, &L::rank_pattern>({
          .key = "lora.rank_pattern",
          .says = "Ranks that differ from lora.rank, as NAME=RANK. NAME is the end of a matrix's name, or a regular expression for it.",
          .zero = "none",
          .example = "[q_proj=8]",
      }),
      option<&R::lora, &L::alpha_pattern>({
          .key = "lora.alpha_pattern",
          .says = "The same for lora.alpha, as NAME=ALPHA.",
          .zero = "none",
          .example = "[q_proj=16]",
      }),
      option<&R::lora, &L::rslora>({
          .key = "lora.rslora",
          .says = "Adapters count alpha / sqrt(rank) instead: steady at high ranks.",
          .aliases = {{"use_rslora"}, {"peft_use_rslora"}},
      }),
      option<&R::lora, &L::dora>({
          .key = "lora.dora",
          .says = "Train magnitude and direction apart (DoRA).",
          .aliases = {{"use_dora"}, {"peft_use_dora"}},
      }),
      option<&R::lora, &L::layers_to_transform>({
          .key = "lora.layers_to_transform",
          .says = "Blocks that get adapters, counted from 0.",
          .range = at_least(0),
          .zero = "all",
          .zero_words = {"all"},
          .aliases = {{"peft_layers_to_transform"}, {"lora_layers_to_transform"}},
          .example = "[0, 1]",
      }),
      option<&R::lora, &L::modules_to_save>({
          .key = "lora.modules_to_save",
          .says = "Modules trained whole beside the adapters: embed_tokens, lm_head.",
          .zero = "none",
          .aliases = {{"lora_modules_to_save"}, {"additional_target"}},
          .example = "[embed_tokens, lm_head]",
      }),
      option<&R::lora, &L::adapters>({
          .key = "lora.adapters",
          .says = "PEFT folders to go on from: all but the last are folded into the weights, the last is trained on.",
          .zero = "a new adapter",
          .aliases = {{"adapter_name_or_path"}, {"lora_model_dir"}},
          .flags = {"--adapter"},
          .example = "[runs/first/adapter]",
      }),
      option<&R::lora, &L::b_lr_ratio>({
          .key = "lora.b_lr_ratio",
          .says = "Learning rate of the B matrices over that of the A matrices (LoRA+).",
          .range = above(0, 1000),
          .aliases = {{"loraplus_lr_ratio"}},
      }),
  };
}

}  // namespace lockstep::config
