// The options of the section `model`: the shape of the network.
#include "config/table/option.h"

namespace lockstep::config {

using R = RunConfig;
using M = ModelConfig;
using S = RopeScalingConfig;

std::vector<Option> model_options() {
  return {
      option<&R::model, &M::name>({
          .key = "model.name",
          .says = "Name of the model; run folders and reports carry it.",
      }),
      option<&R::model, &M::path>({
          .key = "model.path",
          .says = "Hugging Face model folder to start from: its config.json gives the shape, its safetensors the weights.",
          .zero = "random weights",
          .aliases = {{"base_model"}, {"model_name_or_path"}, {"pretrained_model_name_or_path"}},
          .flags = {"--model", "-m"},
          .example = "models/Llama-3.2-1B",
      }),
      option<&R::model, &M::family>({
          .key = "model.family",
          .says = "Whose network this is: names of tensors, and what a written model folder calls itself. auto: the plainest one that has "
                  "qkv_bias, qk_norm and sliding_window as set; olmo2 (norms behind attention and feed-forward) is to be stated.",
      }),
      option<&R::model, &M::hidden_size>({
          .key = "model.hidden_size",
          .says = "Width of the residual stream.",
          .range = between(1, 1 << 20),
          .aliases = {{"n_embd"}, {"d_model"}},
      }),
      option<&R::model, &M::num_layers>({
          .key = "model.num_layers",
          .says = "Number of decoder blocks.",
          .unit = "blocks",
          .range = between(1, 4096),
          .aliases = {{"num_hidden_layers"}, {"n_layer"}, {"n_layers"}},
      }),
      option<&R::model, &M::num_heads>({
          .key = "model.num_heads",
          .says = "Query heads of each attention; divides hidden_size unless head_dim is given.",
          .unit = "heads",
          .range = between(1, 4096),
          .aliases = {{"num_attention_heads"}, {"n_head"}, {"n_heads"}},
      }),
      option<&R::model, &M::kv_heads>({
          .key = "model.kv_heads",
          .says = "Key and value heads of each attention; num_heads is a multiple of it.",
          .unit = "heads",
          .range = between(0, 4096),
          .zero = "as many as num_heads",
          .zero_words = {"auto"},
          .aliases = {{"num_key_value_heads"}, {"num_kv_heads"}, {"n_kv_heads"}},
          .example = "2",
      }),
      option<&R::model, &M::head_dim>({
          .key = "model.head_dim",
          .says = "Width of one head; even, because rotary positions turn pairs.",
          .range = between(0, 4096),
          .zero = "hidden_size / num_heads",
          .zero_words = {"auto"},
          .example = "64",
      }),
      option<&R::model, &M::intermediate_size>({
          .key = "model.intermediate_size",
          .says = "Width of the feed-forward part (SwiGLU).",
          .range = between(0, 1 << 22),
          .zero = "8/3 of hidden_size, rounded up to a multiple of 64",
          .zero_words = {"auto"},
          .aliases = {{"ffn_hidden_size"}},
          .example = "1024",
      }),
      option<&R::model, &M::vocab_size>({
          .key = "model.vocab_size",
          .says = "Number of different tokens; every token of the data is below it.",
          .unit = "tokens",
          .range = between(2, 1 << 28),
      }),
      option<&R::model, &M::max_seq_len>({
          .key = "model.max_seq_len",
          .says = "Longest sequence the model is meant for.",
          .unit = "tokens",
          .range = between(2, 1 << 24),
          .aliases = {{"max_position_embeddings"}, {"n_positions"}},
      }),
      option<&R::model, &M::rope_theta>({
          .key = "model.rope_theta",
          .says = "Base of the rotary position frequencies.",
          .range = above(0),
      }),
      option<&R::model, &M::sliding_window>({
          .key = "model.sliding_window",
          .says = "How many earlier tokens attention sees; data.seq_len may not be longer.",
          .unit = "tokens",
          .range = between(0, 1 << 24),
          .zero = "all",
      }),
      option<&R::model, &M::dtype>({
          .key = "model.dtype",
          .says = "Number format of forward and backward; bf16 and f16 keep f32 master weights.",
          .aliases = {{"torch_dtype"}, {"train_dtype"}, {"mixed_precision"}, {"bf16", "bf16"}, {"fp16", "f16"}, {"fp32", "f32"}},
          .flags = {"--dtype"},
      }),
      option<&R::model, &M::tie_embeddings>({
          .key = "model.tie_embeddings",
          .says = "The output head shares the weights of the token embedding.",
          .aliases = {{"tie_word_embeddings"}},
      }),
      option<&R::model, &M::qkv_bias>({
          .key = "model.qkv_bias",
          .says = "Query, key and value projections have a bias.",
          .aliases = {{"attention_bias"}},
      }),
      option<&R::model, &M::qk_norm>({
          .key = "model.qk_norm",
          .says = "Queries and keys are normalized per head (RMSNorm) before the rotation.",
          .aliases = {{"use_qk_norm"}},
      }),
      option<&R::model, &M::norm_eps>({
          .key = "model.norm_eps",
          .says = "Added inside RMSNorm's square root.",
          .range = above(0, 1),
          .aliases = {{"rms_norm_eps"}, {"layer_norm_epsilon"}},
      }),
      option<&R::model, &M::initializer_range>({
          .key = "model.initializer_range",
          .says = "Standard deviation of the initial weights.",
          .range = above(0, 10),
          .aliases = {{"init_std"}},
      }),
      option<&R::model, &M::load_in_4bit>({
          .key = "model.load_in_4bit",
          .says = "Frozen matrices of blocks are held as NF4, four bits a weight, as bitsandbytes does; for LoRA.",
          .aliases = {{"use_qlora"}},
          .flags = {"--load-in-4bit"},
      }),
      option<&R::model, &M::load_in_8bit>({
          .key = "model.load_in_8bit",
          .says = "Frozen matrices of blocks are held as blockwise int8; for LoRA.",
          .flags = {"--load-in-8bit"},
      }),
      option<&R::model, &M::double_quant>({
          .key = "model.double_quant",
          .says = "The scales of 4-bit weights are quantized too.",
          .aliases = {{"bnb_4bit_use_double_quant"}, {"double_quantization"}},
      }),
      option<&R::model, &M::rope_scaling, &S::type>({
          .key = "model.rope_scaling.type",
          .says = "Kind of stretching: none, linear (Llama 2 style), or llama3 (Llama 3.1 and later).",
          .aliases = {{"rope_type"}},
      }),
      option<&R::model, &M::rope_scaling, &S::factor>({
          .key = "model.rope_scaling.factor",
          .says = "By how much long wavelengths are stretched.",
          .range = at_least(1),
      }),
      option<&R::model, &M::rope_scaling, &S::low_freq_factor>({
          .key = "model.rope_scaling.low_freq_factor",
          .says = "Wavelengths above original_max_seq_len / this are stretched whole (llama3).",
          .range = above(0),
      }),
      option<&R::model, &M::rope_scaling, &S::high_freq_factor>({
          .key = "model.rope_scaling.high_freq_factor",
          .says = "Wavelengths below original_max_seq_len / this stay as they are (llama3).",
          .range = above(0),
      }),
      option<&R::model, &M::rope_scaling, &S::original_max_seq_len>({
          .key = "model.rope_scaling.original_max_seq_len",
          .says = "The length the model was first trained for (llama3).",
          .unit = "tokens",
          .range = at_least(2),
          .aliases = {{"original_max_position_embeddings"}},
      }),
  };
}

}  // namespace lockstep::config
