// docs/coming_from.md: the share of each program's keys that is mapped, and what becomes of each.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/option.h"

namespace lockstep::config {
namespace {

using Action = ImportRow::Action;

constexpr std::string_view opening = R"(# Coming from Axolotl, LLaMA-Factory, TRL, torchtune or Unsloth

<!-- Made by `make docs` from the tables in src/config/import; `make check` compares. -->

## Import a file

    lockstep config import axolotl.yaml --output run.yaml
    lockstep config import args.json --from huggingface --output run.yaml

It reads YAML or JSON of Axolotl, LLaMA-Factory (and its v1), TRL's scripts and the alignment handbook, Hugging Face TrainingArguments, torchtune,
accelerate and DeepSpeed, tells them apart by their keys, and says line by line what became of each:

| | |
|---|---|
| mapped | the value is in the run file, under our name |
| filled in | their default is not ours, so it is written out: Axolotl's `micro_batch_size` 1 and `sequence_len` 512, TRL's `learning_rate` 2e-5 and `lora_dropout` 0.05, LLaMA-Factory's `finetuning_type` lora and the like |
| noted | goes on, but not word for word as there: a chat template that is the model folder's own here, an upload that does not happen |
| ignored | harmless: what is always on here, or only concerns their program |
| refused | changes the training and cannot be done here, or is not a key that the table knows; the line says what to do instead. The run file holds it as a comment |

The exit code is 2 if something was refused, so that a script notices. A model or dataset that is a name on the Hub and not a folder or file is
refused too: nothing is downloaded. Give the folder and the file when training with the run file: `--model DIR --data chat.jsonl`.

A file for other training than that on text (DPO, KTO, ORPO, GRPO, reward models, distillation, images) ends the import, and nothing is written; so do
files of OneTrainer. Records of preference pairs, of KTO and with images are refused by name when they are read.

What is read of datasets: Axolotl's `datasets` of type chat_template (names of messages and roles), alpaca (in Axolotl's own words,
`data.prompt_style = alpaca`) and completion; LLaMA-Factory's `dataset_info.json` with its `columns`, `tags` and `formatting`; torchtune's chat, instruct
and text builders. Several of them are read as one where they are of one form.

Arguments of Unsloth's notebooks are TRL's. Many names also work as they are, in files and as flags: `lockstep config explain lora_r` says what
one means. A file of another program that is given to `lockstep train` is told as such, with this command.

)";

enum class Share { mapped, harmless, refused };

Share share_of(const ImportRow& row) {
  switch (row.action) {
    case Action::copy:
    case Action::flag: return Share::mapped;
    case Action::convert: return row.text.empty() ? Share::harmless : Share::mapped;
    case Action::ignore:
    case Action::note: return Share::harmless;
    default: return Share::refused;
  }
}

// The first row of a key counts: a program that takes TrainingArguments over says some of them anew.
std::vector<const ImportRow*> distinct_rows(const ImportProgram& program) {
  std::vector<const ImportRow*> result;
  std::set<std::string_view> seen;
  for (const ImportRow& row : program.rows) {
    if (seen.insert(row.theirs).second) result.push_back(&row);
  }
  return result;
}

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string share_table() {
  std::string text =
      "## How much of each is read\n\nKeys that each table knows; one that ends in * stands for all that begin so. Mapped means that a "
      "setting here "
      "does the same;\nharmless, that nothing here hangs on it; refused, that a value other than the one that switches it off is.\n\n"
      "| program | keys | mapped | harmless | refused |\n|---|---|---|---|---|\n";
  for (const ImportProgram* program : import_programs()) {
    std::map<Share, std::size_t> counts;
    const auto rows = distinct_rows(*program);
    for (const ImportRow* row : rows) ++counts[share_of(*row)];
    const auto share = [&](Share kind) {
      return fmt::format("{} ({:.0f}%)", counts[kind], 100.0 * static_cast<double>(counts[kind]) / static_cast<double>(rows.size()));
    };
    text += fmt::format("| {} | {} | {} | {} | {} |\n", program->name, rows.size(), share(Share::mapped), share(Share::harmless),
                        share(Share::refused));
  }
  return text + "\n";
}

// our key -> their names, by program
std::string names_table() {
  const std::vector<const ImportProgram*> columns = {&trl(), &axolotl(), &llama_factory(), &torchtune()};
  std::map<std::string, std::map<const ImportProgram*, std::vector<std::string>>> names;
  for (const ImportProgram* program : columns) {
    for (const ImportRow* row : distinct_rows(*program)) {
      if (share_of(*row) != Share::mapped) continue;
      for (const std::string& ours : base::split(row->text, ',')) names[base::trim(ours)][program].push_back(code(row->theirs));
    }
  }
  std::string text =
      "## What your option is called here\n\n| here | TRL, Unsloth, TrainingArguments | Axolotl | LLaMA-Factory | torchtune "
      "|\n|---|---|---|---|---|\n";
  for (const Option& option : options()) {
    const auto found = names.find(std::string(option.key));
    if (found == names.end()) continue;
    text += fmt::format("| {} |", code(option.key));
    for (const ImportProgram* program : columns) text += fmt::format(" {} |", base::join(found->second[program], ", "));
    text += "\n";
  }
  return text +
         "| `lockstep merge` | `save_pretrained_merged` | `axolotl merge-lora` | `llamafactory-cli export` | merged by the checkpointer |\n"
         "| `lockstep chat` | | `axolotl inference` | `llamafactory-cli chat` | `tune run generate` |\n\n";
}

// Keys with the same answer stand together.
std::string fates(const ImportProgram& program, Share kind, std::string_view title) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const ImportRow* row : distinct_rows(program)) {
    if (share_of(*row) != kind || row->text.empty()) continue;
    const std::string reason(row->text);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == reason; });
    if (group == groups.end()) group = groups.insert(groups.end(), {reason, {}});
    group->second.push_back(code(row->theirs));
  }
  std::string text = fmt::format("{}\n\n", title);
  for (const auto& [reason, keys] : groups) text += fmt::format("- {}: {}\n", base::join(keys, ", "), reason);
  return text + "\n";
}

}  // namespace

std::string coming_from_markdown() {
  std::string text(opening);
  text += share_table();
  text += names_table();
  text += "## What is refused, and what to do\n\n";
  for (const ImportProgram* program : {&axolotl(), &llama_factory(), &trl(), &torchtune()})
    text += fates(*program, Share::refused, fmt::format("### {}", program->name));
  text +=
      "Shares of all steps can be given where the steps of an epoch are not known beforehand: `trainer.warmup_ratio`; `lockstep train "
      "--dry-run` "
      "says the number of steps.\n";
  return text;
}

}  // namespace lockstep::config
