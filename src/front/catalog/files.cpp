// Models, data and checkpoints that cannot be read, or not be written over.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_files() {
  return {
      {.code = "LS-501",
       .title = "A model folder cannot be read",
       .symptom =
           "Weights are missing, 'invalid header', 'HeaderTooLarge', 'is a pointer of Git LFS', 'holds neither model.safetensors nor ...'.",
       .cause = "The folder is not whole: a download that broke off, Git LFS pointers instead of files, or a format that is not read.",
       .fix = "fetch the folder again (git lfs pull, or `huggingface-cli download NAME --local-dir DIR`); weights must be safetensors",
       .patterns = {"is a pointer of git lfs", "holds neither model.safetensors", "headertoolarge", "headertoosmall", "invalidheader",
                    "metadataincompletebuffer", "error while deserializing header", "gguf files are not read",
                    "a pickle, which could run any code", "is missing; * names it. fetch the folder again", "there is no such folder",
                    "holds no config.json", "error no file named", "invalid load key", "unsloth: no config file found",
                    "can't load tokenizer for"}},
      {.code = "LS-502",
       .title = "The model's architecture is not known",
       .symptom = "'the architecture ... is not supported', 'does not recognize this architecture'.",
       .cause = "config.json names a family of models that is not built in, or one newer than the program.",
       .fix = "docs/finetuning.md lists the families there are; docs/adding_a_family.md tells how one is added",
       .patterns = {"does not recognize this architecture", "the architecture * is not supported", "keyerror: 'qwen", "keyerror: 'llama",
                    "unsloth: * not supported yet", "tokenizer class * does not exist"}},
      {.code = "LS-503",
       .title = "Data cannot be read",
       .symptom = "'does not exist', 'cannot be read as Parquet', a record that is not JSON.",
       .cause = "The path is wrong as seen from here, a file is damaged, or its lines are of another format.",
       .fix = "`lockstep data inspect --data FILE` shows what is read of it, with the places of bad records",
       .patterns = {"[data] ", "jsondecodeerror", "datasets.exceptions", "datasetgenerationerror", "cannot be read as parquet",
                    "pyarrow.lib.arrowinvalid"}},
      {.code = "LS-504",
       .title = "A checkpoint is damaged or does not fit",
       .symptom = "'checksum', 'is damaged', 'size mismatch for ...', 'Missing key(s) in state_dict'.",
       .cause = "Bytes changed on the disk, files were deleted, or the checkpoint is of a model of other shapes.",
       .fix = "resume from the checkpoint before it (--resume PATH); keep the settings of the model as they were",
       .patterns = {"size mismatch for", "missing key(s) in state_dict", "unexpected key(s) in state_dict", "[checkpoint] ",
                    "pytorchstreamreader failed"}},
      {.code = "LS-505",
       .title = "A run of that name exists, or someone trains it",
       .symptom = "'already holds a run with checkpoints', 'waiting for the run folder'.",
       .cause = "A run's folder is never written over, and one run owns it at a time.",
       .fix = "go on with it by --resume auto, or give the new run another --name",
       .patterns = {"already holds a run with checkpoints"}},
      {.code = "LS-506",
       .title = "A model of the Hugging Face Hub is not on this machine",
       .symptom = "'401 Client Error', 'GatedRepoError', 'is not a local folder and is not a valid model identifier', 'Couldn't connect to "
                  "https://huggingface.co'.",
       .cause =
           "Models are read from folders; nothing is downloaded. The name is one of the Hub, perhaps of a model that asks for consent.",
       .fix = "download it once (`huggingface-cli login`, then `huggingface-cli download NAME --local-dir DIR`) and give the folder with "
              "--model",
       .patterns = {"gatedrepoerror", "401 client error", "is not a local folder and is not a valid model identifier",
                    "couldn't connect to", "repositorynotfounderror", "localentrynotfounderror", "offlinemodeisenabled", "403 client error",
                    "429 client error", "trying to access a gated repo", "does not appear to have a file named"}},
      {.code = "LS-507",
       .title = "Conversations without a chat template that takes them",
       .symptom =
           "'comes without a chat template', 'tokenizer.chat_template is not set', 'Conversation roles must alternate', 'does not have a "
           "padding token'.",
       .cause =
           "Messages become text by the model's chat template. A base model often has none, and many templates refuse a system message, or "
           "two messages of one role in a row. Padding tokens are not needed here.",
       .fix =
           "give a template with data.chat_template=FILE, or use an instruct model's folder; `lockstep data inspect` shows the text that a "
           "conversation becomes",
       .patterns = {"without a chat template", "has no chat template", "tokenizer.chat_template is not set", "refused by the chat template",
                    "is no chat template that can be used", "conversation roles must alternate", "does not have a padding token",
                    "system role not supported"}},
  };
}

}  // namespace lockstep::catalog
