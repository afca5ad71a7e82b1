// The options of the section `data`: what the model is trained on.
#include "config/table/option.h"

namespace lockstep::config {

using R = RunConfig;
using D = DataConfig;

std::vector<Option> data_options() {
  return {
      option<&R::data, &D::path>({
          .key = "data.path",
          .says = "Training data: JSONL, JSON, CSV or Parquet records, a .bin file of tokens, or a text file.",
          .zero = "the built-in stories",
          .aliases = {{"train_file"}, {"dataset"}, {"data_path"}},
          .flags = {"--data", "-d"},
          .example = "data/tokens.bin",
      }),
      option<&R::data, &D::kind>({
          .key = "data.kind",
          .says = "What the data is; auto goes by the file's name: .bin holds tokens; .jsonl, .json, .csv and .parquet records; anything "
                  "else is text.",
      }),
      option<&R::data, &D::token_type>({
          .key = "data.token_type",
          .says = "Width of a token in a .bin file (little-endian, no header).",
      }),
      option<&R::data, &D::seq_len>({
          .key = "data.seq_len",
          .says = "Tokens of one sample.",
          .unit = "tokens",
          .range = between(0, 1 << 24),
          .zero = "model.max_seq_len",
          .zero_words = {"auto"},
          .aliases = {{"sequence_length"}, {"seq_length"}, {"block_size"}, {"max_length"}, {"max_seq_length"}},
          .flags = {"--seq-len"},
          .example = "512",
      }),
      option<&R::data, &D::validation_path>({
          .key = "data.validation_path",
          .says = "Validation data of the same kind.",
          .zero = "validation_fraction of the training data",
          .aliases = {{"validation_file"}},
          .flags = {"--validation-data"},
      }),
      option<&R::data, &D::validation_fraction>({
          .key = "data.validation_fraction",
          .says = "Share of the data held back for validation when there is no validation_path.",
          .range = from_below(0, 1),
          .zero = "no validation",
          .aliases = {{"validation_split"}},
      }),
      option<&R::data, &D::prefetch>({
          .key = "data.prefetch",
          .says = "Micro-batches made ready ahead.",
          .unit = "micro-batches",
          .range = between(0, 4096),
          .zero = "none: read when asked",
          .aliases = {{"dataloader_prefetch_factor"}, {"prefetch_factor"}},
          .flags = {"--prefetch"},
      }),
      option<&R::data, &D::workers>({
          .key = "data.workers",
          .says = "Threads a rank that read data.",
          .unit = "threads",
          .range = between(0, 256),
          .zero = "read in the training thread",
          .aliases = {{"dataloader_num_workers"}, {"num_workers"}, {"dataloader_threads"}},
      }),
      option<&R::data, &D::pin_memory>({
          .key = "data.pin_memory",
          .says = "Batches lie in page-locked memory, so that copies to a GPU run beside compute.",
          .aliases = {{"dataloader_pin_memory"}},
      }),
      option<&R::data, &D::shuffle>({
          .key = "data.shuffle",
          .says = "Samples come in an order drawn from trainer.seed; false keeps the file's.",
      }),
      option<&R::data, &D::distributed_loading>({
          .key = "data.distributed_loading",
          .says = "Each rank reads its own samples; false: rank 0 alone opens the data and hands batches out, validation too.",
          .aliases = {{"distributed_data_loading"}},
          .flags = {"--distributed-data-loading"},
      }),
      option<&R::data, &D::stories>({
          .key = "data.stories",
          .says = "Size of the built-in corpus.",
          .unit = "stories",
          .range = between(1, 1 << 28),
      }),
      option<&R::data, &D::random_tokens>({
          .key = "data.random_tokens",
          .says = "Size of the data of kind random.",
          .unit = "tokens",
          .range = between(4, 1ll << 40),
      }),
      option<&R::data, &D::allow_new_data>({
          .key = "data.allow_new_data",
          .says = "Resume although the data is not what the checkpoint was trained on.",
          .flags = {"--allow-new-data"},
      }),
      option<&R::data, &D::format>({
          .key = "data.format",
          .says = "What a record holds: messages, sharegpt conversations, alpaca instruction/input/output, prompt and completion, or text.",
          .aliases = {{"dataset_format"}},
      }),
      option<&R::data, &D::train_on>({
          .key = "data.train_on",
          .says = "Which tokens are trained: responses (what auto means for chat), all, last, the final response of a conversation, or "
                  "whole_chats, the whole of a conversation and the completion of a prompt, as TRL has it by itself.",
      }),
      option<&R::data, &D::packing>({
          .key = "data.packing",
          .says = "Fill each sequence with several records that do not see each other.",
          .aliases = {{"sample_packing"}},
          .flags = {"--packing"},
      }),
      option<&R::data, &D::too_long>({
          .key = "data.too_long",
          .says = "What happens to a record longer than data.seq_len: cut its end, cut its start, skip it, or stop with an error.",
      }),
      option<&R::data, &D::bad_records>({
          .key = "data.bad_records",
          .says = "What happens at a record that cannot be read: stop with an error that names the line, or skip and count it.",
      }),
      option<&R::data, &D::tokenizer>({
          .key = "data.tokenizer",
          .says = "Folder or file of the tokenizer (tokenizer.json).",
          .zero = "model.path",
          .aliases = {{"tokenizer_name_or_path"}},
          .flags = {"--tokenizer"},
      }),
      option<&R::data, &D::chat_template>({
          .key = "data.chat_template",
          .says = "Chat template (Jinja): a file, or the template itself, told by its {{ or {%.",
          .zero = "the tokenizer's",
          .example = "chat_template.jinja",
      }),
      option<&R::data, &D::prompt_style>({
          .key = "data.prompt_style",
          .says =
              "How an alpaca record's instruction is put: auto by the chat template where there is one; alpaca in the words of Stanford "
              "Alpaca, without a template.",
      }),
      option<&R::data, &D::system_prompt>({
          .key = "data.system_prompt",
          .says = "System message for conversations that have none.",
          .zero = "none",
      }),
      option<&R::data, &D::messages_field>({
          .key = "data.messages_field",
          .says = "Field of a record that holds its conversation.",
          .zero = "messages or conversations",
      }),
      option<&R::data, &D::prompt_field>({
          .key = "data.prompt_field",
          .says = "Field of a record that holds the prompt.",
          .zero = "prompt",
      }),
      option<&R::data, &D::completion_field>({
          .key = "data.completion_field",
          .says = "Field of a record that holds the answer.",
          .zero = "completion",
      }),
      option<&R::data, &D::text_field>({
          .key = "data.text_field",
          .says = "Field of a record that holds raw text.",
          .zero = "text",
          .aliases = {{"dataset_text_field"}},
      }),
      option<&R::data, &D::system_field>({
          .key = "data.system_field",
          .says = "Field of a record that holds the system message; none: not read.",
          .zero = "system",
      }),
      option<&R::data, &D::input_field>({
          .key = "data.input_field",
          .says = "Field of an alpaca record that holds what the instruction is about; none: not read.",
          .zero = "input",
      }),
      option<&R::data, &D::history_field>({
          .key = "data.history_field",
          .says = "Field of an alpaca record that holds earlier questions and answers; none: not read.",
          .zero = "history",
      }),
      option<&R::data, &D::tools_field>({
          .key = "data.tools_field",
          .says = "Field of a record that describes the functions it may call; none: not read.",
          .zero = "tools",
      }),
      option<&R::data, &D::role_field>({
          .key = "data.role_field",
          .says = "Field of a message that holds who speaks.",
          .zero = "role, or from",
      }),
      option<&R::data, &D::content_field>({
          .key = "data.content_field",
          .says = "Field of a message that holds what is said.",
          .zero = "content, or value",
      }),
      option<&R::data, &D::roles>({
          .key = "data.roles",
          .says = "What roles are called in the records, each as ours=theirs; ours are user, assistant, system, tool and function_call. "
                  "Where it is given, other names are refused.",
          .zero = "the usual names",
          .example = "[user=customer, assistant=agent]",
      }),
      option<&R::data, &D::max_samples>({
          .key = "data.max_samples",
          .says = "Use the first so many records.",
          .unit = "records",
          .range = at_least(0),
          .zero = "all",
      }),
      option<&R::data, &D::cache_dir>({
          .key = "data.cache_dir",
          .says = "Folder for tokenized data.",
          .zero = "LOCKSTEP_CACHE, or ~/.cache/lockstep",
          .aliases = {{"dataset_prepared_path"}},
      }),
  };
}

}  // namespace lockstep::config
