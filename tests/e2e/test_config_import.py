"""`lockstep config import`: what becomes of every key of other programs' files, and that the run file loads."""
import dataclasses
import json
import subprocess

import pytest
import yaml

from support.chat_model import write_tokenizer
from support.lockstep import LOCKSTEP

AXOLOTL = {
    "base_model": "MODEL", "model_type": "LlamaForCausalLM", "load_in_8bit": False, "load_in_4bit": True, "strict": False,
    "datasets": [{"path": "chat.jsonl", "type": "chat_template", "field_messages": "turns", "split": "train"}],
    "dataset_prepared_path": None, "val_set_size": 0.05, "output_dir": "./outputs/first", "adapter": "qlora", "sequence_len": 64,
    "sample_packing": True, "pad_to_sequence_len": True, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_target_linear": True,
    "gradient_accumulation_steps": 4, "micro_batch_size": 2, "num_epochs": 3, "optimizer": "adamw_bnb_8bit", "lr_scheduler": "cosine",
    "learning_rate": 0.0002, "train_on_inputs": True, "bf16": "auto", "tf32": False, "gradient_checkpointing": "offload", "logging_steps": 1,
    "flash_attention": True, "warmup_steps": 10, "evals_per_epoch": 4, "saves_per_epoch": 1, "weight_decay": 0.01, "wandb_project": "x",
    "special_tokens": {"pad_token": "<pad>"}, "trust_remote_code": True, "chat_template": "tokenizer_default",
    "plugins": ["axolotl.integrations.liger.LigerPlugin", "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"],
    "liger_rope": True, "fsdp_config": {}, "bnb_config_kwargs": {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False},
}
LLAMA_FACTORY = {
    "model_name_or_path": "MODEL", "trust_remote_code": True, "stage": "sft", "do_train": True, "finetuning_type": "lora", "lora_rank": 8,
    "lora_target": "q_proj,v_proj", "dataset": "mine", "template": "chatml", "cutoff_len": 64, "max_samples": 1000, "overwrite_cache": True,
    "preprocessing_num_workers": 16, "output_dir": "saves/llama3/lora", "logging_steps": 10, "save_steps": 500, "plot_loss": True,
    "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "learning_rate": 1.0e-4, "num_train_epochs": 3.0,
    "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "bf16": True, "ddp_timeout": 180000000, "quantization_bit": 8, "val_size": 0.1,
    "per_device_eval_batch_size": 1, "eval_strategy": "steps", "eval_steps": 50, "dataset_dir": "sets",
}
HUGGING_FACE = {
    "output_dir": "out/run", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 3e-4, "weight_decay": 0.0,
    "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-6, "max_grad_norm": 0.5, "max_steps": 200, "num_train_epochs": 3.0, "lr_scheduler_type": "SchedulerType.COSINE",
    "lr_scheduler_kwargs": {"min_lr_rate": 0.2}, "warmup_ratio": 0.05, "optim": "OptimizerNames.ADAMW_TORCH_FUSED", "bf16": True, "fp16": False,
    "eval_strategy": "steps", "eval_steps": 0.25, "save_strategy": "no", "save_steps": 500, "seed": 7, "report_to": ["tensorboard", "wandb"],
    "dataloader_num_workers": 2, "dataloader_drop_last": True, "ddp_backend": "gloo", "ddp_bucket_cap_mb": 50, "fsdp": [], "deepspeed": None,
    "fsdp_config": {"min_num_params": 0}, "torch_compile": False, "push_to_hub": False, "push_to_hub_token": "<TOKEN>", "accelerator_config": {"split_batches": False},
    "gradient_checkpointing": True, "label_smoothing_factor": 0.0, "group_by_length": False, "local_rank": 0, "logging_first_step": False,
}
TEMPLATE = "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}{% endfor %}"


def write_folder(folder, vocab_size=1000, model_type="llama"):
    folder.mkdir()
    architecture = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[model_type]
    (folder / "config.json").write_text(json.dumps({
        "architectures": [architecture], "model_type": model_type, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": vocab_size, "max_position_embeddings": 2048}))
    write_tokenizer(folder)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    here = tmp_path_factory.mktemp("imports")
    write_folder(here / "model")
    write_folder(here / "llama3", vocab_size=128256)
    write_folder(here / "qwen2", model_type="qwen2")
    (here / "sets").mkdir()
    (here / "sets" / "dataset_info.json").write_text(json.dumps({name: entry for name, (entry, _) in DATASETS.items()} | STOPPED_DATASETS | REFUSED_DATASETS))
    (here / "mine.jinja").write_text(TEMPLATE)
    return here


def lockstep(here, *args):
    return subprocess.run([LOCKSTEP, *map(str, args)], cwd=here, capture_output=True, text=True, timeout=60)


def write(here, content, suffix="yaml"):
    content = {key: "model" if value == "MODEL" else value for key, value in content.items()}
    path = here / f"theirs.{suffix}"
    path.write_text(json.dumps(content, indent=1) if suffix == "json" else yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return path.name


def imported(here, content, *args, suffix="yaml"):
    """(exit code, report, run file as nested keys); the run file must load."""
    file = write(here, content, suffix)
    (here / "run.yaml").unlink(missing_ok=True)
    done = lockstep(here, "config", "import", file, "--output", "run.yaml", *args)
    assert done.stderr == "", done.stderr
    assert f"wrote run.yaml" in done.stdout
    shown = lockstep(here, "config", "show", "-f", "run.yaml")
    assert shown.returncode == 0, shown.stderr
    return done.returncode, done.stdout, yaml.safe_load((here / "run.yaml").read_text())


def group(report, title):
    """The lines below a heading."""
    lines, inside = [], False
    for line in report.splitlines():
        if not line.startswith("  "):
            inside = line.startswith(title)
        elif inside:
            lines.append(line)
    return "\n".join(lines)


def test_axolotl(here):
    code, report, run = imported(here, AXOLOTL)
    assert (code, report.splitlines()[-2].split(":")[0]) == (0, "Axolotl file"), report
    assert run == {
        "name": "first", "output": "./outputs",
        "model": {"path": "model", "dtype": "bf16", "load_in_4bit": True, "double_quant": False},
        "lora": {"enabled": True, "rank": 8, "alpha": 16, "dropout": 0.05, "target_modules": ["all-linear"]},
        "data": {"path": "chat.jsonl", "format": "messages", "messages_field": "turns", "seq_len": 64, "packing": True, "validation_fraction": 0.05, "train_on": "all",
                 "too_long": "skip"},
        "trainer": {"batch_size": 2, "gradient_accumulation": 4, "num_epochs": 3, "learning_rate": 0.0002, "lr_schedule": "cosine", "min_lr_ratio": 0,
                    "warmup_steps": 10, "optimizer": "adamw_8bit", "beta2": 0.999, "weight_decay": 0.01, "recompute": "blocks", "offload_checkpoints": True,
                    "log_interval": 1, "max_checkpoints": 4},
        "monitor": {"wandb": True, "wandb_project": "x"},
    }
    # Every key of the file is spoken of, with its line.
    for key in AXOLOTL:
        assert f" {key}" in report, key
    assert "lora_r: 8  ->  lora.rank = 8" in report


def test_llama_factory(here):
    code, report, run = imported(here, LLAMA_FACTORY)
    assert code == 0, report
    assert "LLaMA-Factory file: " in report
    assert run["model"] == {"path": "model", "dtype": "bf16", "load_in_8bit": True}
    assert run["lora"] == {"enabled": True, "rank": 8, "target_modules": ["q_proj", "v_proj"]}
    assert run["data"].pop("chat_template").startswith("{% for message in messages %}{{ '<|im_start|>'")
    assert run["data"] == {"path": "sets/mine.json", "format": "alpaca", "prompt_field": "instruction", "completion_field": "output", "input_field": "input",
                           "history_field": "none", "system_field": "none", "tools_field": "none", "seq_len": 64, "max_samples": 1000, "validation_fraction": 0.1}
    assert run["trainer"]["eval_interval"] == 50 and run["trainer"]["weight_decay"] == 0 and run["trainer"]["warmup_ratio"] == 0.1
    assert "cutoff_len" in group(report, "noted")


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_training_arguments(here, suffix):
    code, report, run = imported(here, HUGGING_FACE, suffix=suffix)
    assert code == 0, report
    assert "Hugging Face file: " in report
    run["trainer"]["epsilon"] = float(run["trainer"]["epsilon"])  # PyYAML takes 1e-06 for a text
    assert run == {
        "name": "run", "output": "out",
        "model": {"dtype": "bf16"},
        "data": {"workers": 2, "validation_fraction": 0},
        "parallel": {"bucket_cap_mb": 50},
        "monitor": {"tensorboard": True, "wandb": True},
        "trainer.distributed": {"backend": "gloo"},
        "trainer": {"batch_size": 4, "gradient_accumulation": 2, "learning_rate": 3e-4, "weight_decay": 0, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-6,
                    "max_grad_norm": 0.5, "max_steps": 200, "lr_schedule": "cosine", "min_lr_ratio": 0.2, "warmup_ratio": 0.05, "optimizer": "adamw",
                    "eval_interval": 50, "save_interval": 0, "seed": 7, "recompute": "blocks", "max_checkpoints": 0},
    }


def test_every_training_argument_of_transformers(here):
    """What transformers itself writes, every field at its default, is read without a refusal, and no field is unknown."""
    from transformers import TrainingArguments

    arguments = json.loads(TrainingArguments(output_dir="out/run", use_cpu=True).to_json_string())
    code, report, run = imported(here, arguments, "--from", "huggingface", suffix="json")
    assert code == 0, group(report, "refused")
    for field in dataclasses.fields(TrainingArguments):
        if field.name in arguments:
            assert f" {field.name}" in report, field.name
    trainer = {option: run["trainer"][option] for option in ("batch_size", "gradient_accumulation", "num_epochs", "lr_schedule", "weight_decay", "beta2")}
    assert trainer == {"batch_size": arguments["per_device_train_batch_size"], "gradient_accumulation": arguments["gradient_accumulation_steps"],
                       "num_epochs": arguments["num_train_epochs"], "lr_schedule": arguments["lr_scheduler_type"], "weight_decay": arguments["weight_decay"],
                       "beta2": arguments["adam_beta2"]}
    assert float(run["trainer"]["learning_rate"]) == arguments["learning_rate"]


# A file that says next to nothing, and what the program itself would take.
DEFAULTS = {
    "axolotl": ({"base_model": "MODEL", "datasets": [{"path": "a.jsonl", "type": "chat_template"}], "learning_rate": 1e-4, "max_steps": 10},
                {"trainer.batch_size": 1, "trainer.gradient_accumulation": 1, "data.seq_len": 512, "trainer.warmup_ratio": 0.03, "trainer.warmup_steps": 100,
                 "data.too_long": "skip", "model.dtype": "bf16", "data.validation_fraction": 0, "trainer.weight_decay": 0, "trainer.beta2": 0.999,
                 "trainer.min_lr_ratio": 0, "lora.enabled": None}),
    "axolotl adapter": ({"base_model": "MODEL", "adapter": "lora", "lora_r": 4, "lora_alpha": 8, "micro_batch_size": 3},
                        {"lora.target_modules": ["q_proj", "v_proj"], "lora.dropout": None, "trainer.batch_size": 3}),
    "axolotl text": ({"base_model": "MODEL", "datasets": [{"path": "a.jsonl", "type": "completion", "field": "body"}], "sequence_len": 128},
                     {"data.format": "text", "data.text_field": "body", "data.too_long": None, "data.seq_len": 128}),
    "axolotl without bf16": ({"base_model": "MODEL", "bf16": False, "micro_batch_size": 1}, {"model.dtype": "f32"}),
    "axolotl constant": ({"base_model": "MODEL", "lr_scheduler": "constant", "warmup_ratio": 0.1, "micro_batch_size": 1}, {"trainer.warmup_ratio": None, "trainer.warmup_steps": None}),
    "axolotl fp8": ({"base_model": "MODEL", "fp8": True, "micro_batch_size": 1}, {"trainer.fp8": True, "model.dtype": "bf16"}),
    "trl": ({"model_name_or_path": "MODEL", "dataset_name": "a.jsonl", "max_steps": 10},
            {"trainer.learning_rate": "2e-5", "trainer.batch_size": 8, "data.seq_len": 1024, "data.too_long": "cut", "data.train_on": "whole_chats", "model.dtype": "bf16",
             "trainer.lr_schedule": "linear", "lora.enabled": None}),
    "trl adapter": ({"model_name_or_path": "MODEL", "dataset_name": "a.jsonl", "use_peft": True, "lora_r": 4, "load_in_4bit": True},
                    {"lora.rank": 4, "lora.alpha": 32, "lora.dropout": 0.05, "lora.target_modules": ["q_proj", "v_proj"], "model.double_quant": False,
                     "trainer.num_epochs": 3}),
    "trl answers": ({"model_name_or_path": "MODEL", "dataset_name": "a.jsonl", "assistant_only_loss": True, "warmup_steps": 0.05},
                    {"data.train_on": "responses", "trainer.warmup_ratio": 0.05, "trainer.warmup_steps": None}),
    "llama-factory": ({"model_name_or_path": "MODEL", "dataset": "mine", "dataset_dir": "sets", "cutoff_len": 512},
                      {"lora.enabled": True, "lora.rank": 8, "trainer.batch_size": 8, "trainer.num_epochs": 3, "trainer.lr_schedule": "linear",
                       "data.validation_fraction": 0, "trainer.learning_rate": "5e-5"}),
    "llama-factory pretraining": ({"model_name_or_path": "MODEL", "stage": "pt", "dataset": "columns", "dataset_dir": "sets", "cutoff_len": 64},
                                  {"data.format": "text", "data.text_field": "question", "data.packing": True}),
    "llama-factory full": ({"model_name_or_path": "MODEL", "dataset": "mine", "dataset_dir": "sets", "finetuning_type": "full", "lora_rank": 16},
                           {"lora.enabled": None, "lora.rank": None}),
}


@pytest.mark.parametrize("case", DEFAULTS)
def test_defaults_of_theirs_are_filled_in(here, case):
    content, expected = DEFAULTS[case]
    code, report, run = imported(here, content)
    assert code == 0, report
    for key, value in expected.items():
        section, leaf = key.split(".")
        assert run.get(section, {}).get(leaf) == value, (key, report)


def test_peft_takes_these_modules_by_itself():
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as modules

    assert all(modules[family] == ["q_proj", "v_proj"] for family in ("llama", "mistral", "qwen2", "qwen3"))


# name: (entry of dataset_info.json, the section data without the path)
NONE = {"system_field": "none", "tools_field": "none"}
ALPACA = {"format": "alpaca", "history_field": "none", **NONE}
DATASETS = {
    "mine": ({"file_name": "mine.json"}, {**ALPACA, "prompt_field": "instruction", "completion_field": "output", "input_field": "input"}),
    "columns": ({"file_name": "mine.json", "columns": {"prompt": "question", "response": "long_answer"}},
                {**ALPACA, "prompt_field": "question", "completion_field": "long_answer", "input_field": "none"}),
    "all columns": ({"file_name": "mine.json", "columns": {"prompt": "q", "query": "about", "response": "a", "system": "sys", "history": "before", "tools": "functions"}},
                    {"format": "alpaca", "prompt_field": "q", "completion_field": "a", "input_field": "about", "system_field": "sys", "history_field": "before", "tools_field": "functions"}),
    "sharegpt": ({"file_name": "mine.json", "formatting": "sharegpt", "columns": {"messages": "talk", "tools": "tools"}},
                 {"format": "sharegpt", "messages_field": "talk", "system_field": "none", "tools_field": "tools"}),
    "openai tags": ({"file_name": "mine.json", "formatting": "sharegpt", "columns": {"messages": "messages"},
                     "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}},
                    {"format": "messages", "messages_field": "messages", **NONE}),
    "own tags": ({"file_name": "mine.json", "formatting": "sharegpt", "columns": {"messages": "talk"},
                  "tags": {"role_tag": "who", "content_tag": "said", "user_tag": "customer", "assistant_tag": "agent"}},
                 {"format": "sharegpt", "messages_field": "talk", "role_field": "who", "content_field": "said", "roles": ["user=customer", "assistant=agent"], **NONE}),
    "two": ({"file_name": "other.json"}, {**ALPACA, "prompt_field": "instruction", "completion_field": "output", "input_field": "input"}),
}
STOPPED_DATASETS = {
    "pairs": {"file_name": "x.json", "ranking": True, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}},
    "kto": {"file_name": "x.json", "formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "label"}},
    "pictures": {"file_name": "x.json", "formatting": "sharegpt", "columns": {"messages": "messages", "images": "images"}},
}
REFUSED_DATASETS = {
    "part": {"file_name": "x.json", "split": "train[:10%]"}, "drawn": {"file_name": "x.json", "num_samples": 10}, "hub": {"hf_hub_url": "org/set"},
    "subset": {"file_name": "x.json", "subset": "en"},
}


@pytest.mark.parametrize("name", DATASETS)
def test_dataset_info(here, name):
    code, report, run = imported(here, {"model_name_or_path": "MODEL", "dataset": name, "dataset_dir": "sets", "finetuning_type": "full"})
    assert code == 0, report
    assert run["data"].pop("path") == ("sets/other.json" if name == "two" else "sets/mine.json")
    assert run["data"] == {**DATASETS[name][1], "validation_fraction": 0}


def test_datasets_of_one_form_are_read_together(here):
    code, report, run = imported(here, {"model_name_or_path": "MODEL", "dataset": "mine, two", "dataset_dir": "sets"})
    assert code == 0 and run["data"]["path"] == "sets/mine.json,sets/other.json", report
    code, report, run = imported(here, {"model_name_or_path": "MODEL", "dataset": "mine,sharegpt", "dataset_dir": "sets", "max_samples": 5})
    assert code == 2 and "dataset: sharegpt  (one set of records is read" in report and "max_samples: 5  (so many of each dataset" in report
    two = [{"path": path, "type": "alpaca"} for path in ("a.jsonl", "b.jsonl")]
    code, report, run = imported(here, {"base_model": "MODEL", "datasets": two})
    assert code == 0 and run["data"]["path"] == "a.jsonl,b.jsonl" and run["data"]["prompt_style"] == "alpaca", report


@pytest.mark.parametrize("name", REFUSED_DATASETS)
def test_entries_that_cannot_be_read_are_refused(here, name):
    code, report, _ = imported(here, {"model_name_or_path": "MODEL", "dataset": name, "dataset_dir": "sets"})
    assert code == 2 and "dataset" in group(report, "refused")


AXOLOTL_DATASETS = [
    ({"type": "chat_template", "message_property_mappings": {"role": "from", "content": "value"}, "field_messages": "conversations"},
     {"format": "sharegpt", "messages_field": "conversations"}),
    ({"type": "chat_template", "message_field_role": "who", "message_field_content": "said"}, {"format": "messages", "role_field": "who", "content_field": "said"}),
    ({"type": "chat_template", "roles": {"user": ["customer"], "assistant": ["agent", "bot"]}},
     {"format": "messages", "roles": ["user=customer", "assistant=agent", "assistant=bot", "user=user", "assistant=assistant", "system=system", "tool=tool"]}),
    ({"type": "chat_template", "chat_template": "jinja", "chat_template_jinja": TEMPLATE}, {"format": "messages", "chat_template": TEMPLATE}),
    ({"type": "chat_template", "field_tools": "functions", "roles_to_train": ["assistant"], "train_on_eos": "turn"}, {"format": "messages", "tools_field": "functions"}),
    ({"path": "json", "data_files": ["a.jsonl", "b.jsonl"], "type": "completion"}, {"format": "text", "path": "a.jsonl,b.jsonl"}),
    ({"type": "alpaca"}, {"format": "alpaca", "prompt_style": "alpaca"}),
]


@pytest.mark.parametrize("dataset,expected", AXOLOTL_DATASETS, ids=range(len(AXOLOTL_DATASETS)))
def test_axolotl_datasets(here, dataset, expected):
    code, report, run = imported(here, {"base_model": "MODEL", "datasets": [{"path": "a.jsonl", **dataset}], "sequence_len": 32})
    assert code == 0, report
    data = {key: value for key, value in run["data"].items() if key not in ("seq_len", "too_long", "validation_fraction")}
    assert data == {"path": "a.jsonl", **expected}


REFUSALS = [
    ({"base_model": "org/name"}, "base_model: org/name  (no such folder here"),
    ({"datasets": [{"path": "org/set", "type": "alpaca"}]}, "datasets[0].path: org/set  (no file here"),
    ({"datasets": [{"path": "a.jsonl", "type": "alpaca"}, {"path": "b.jsonl", "type": "completion"}]}, "datasets[1]: {...}  (one set of records is read"),
    ({"datasets": [{"path": "a.jsonl", "type": {"field_instruction": "q"}}]}, "datasets[0].type: {...}  (types chat_template"),
    ({"datasets": [{"path": "a.jsonl", "type": "sharegpt"}]}, "datasets[0].type: sharegpt  (gone from Axolotl"),
    ({"datasets": [{"path": "a.jsonl", "type": "alpaca_chat.load_qa"}]}, "(types chat_template, alpaca and completion"),
    ({"datasets": [{"path": "a.jsonl", "type": "chat_template", "roles_to_train": ["user"]}]}, "(what assistants say is trained"),
    ({"datasets": [{"path": "a.jsonl", "type": "chat_template", "message_property_mappings": {"role": "role", "content": "content", "tool_calls": "calls"}}]}, "(tool_calls is read under its own name"),
    ({"val_set_size": 200}, "val_set_size: 200  (a number of records"),
    ({"optimizer": "came_pytorch"}, "optimizer: came_pytorch  (there is none of this name"),
    ({"lr_scheduler": "one_cycle"}, "lr_scheduler: one_cycle  (there is none of this name"),
    ({"lora_target_modules": r"model\.layers\.(0|1)\..*"}, "(a pattern; list the names"),
    ({"deepspeed": "deepspeed_configs/mine.json"}, "(say it by parallel.shard"),
    ({"fsdp": ["sideways"]}, "(say it by parallel.shard"),
    ({"load_in_4bit": True}, "(quantized weights are frozen"),
    ({"chat_template": "gemma"}, "chat_template: gemma  (Axolotl's own template of this name"),
    ({"chat_template": "llama3"}, "chat_template: llama3  (Axolotl's own template of this name"),
    ({"special_tokens": {"eos_token": "<end>"}}, "special_tokens.eos_token: <end>  (the tokenizer's own"),
    ({"num_experts": 8}, "(mixture of experts is not built yet)"),
    ({"learning_rate": "fast"}, "learning_rate: fast  (trainer.learning_rate must be a number"),
    ({"frobnicate": 3}, "frobnicate: 3  (not a key of Axolotl that this command knows"),
    ({"learning_rte": 0}, "learning_rte: 0  (not a key of Axolotl that this command knows; did you mean learning_rate?)"),
    ({"enable_thinking": False}, "enable_thinking: false  (not a key of Axolotl"),
    ({"s2_attention": True}, "(shifted sparse attention is not built)"),
    ({"dataset_exact_deduplication": True}, "(records are trained as they stand"),
    ({"bnb_config_kwargs": {"bnb_4bit_quant_type": "fp4"}}, "bnb_config_kwargs.bnb_4bit_quant_type: fp4  (4-bit weights are NF4)"),
    ({"plugins": ["axolotl.integrations.kd.KDPlugin"]}, "plugins[0]: axolotl.integrations.kd.KDPlugin  (what this plugin does is not built)"),
    ({"sequence_len": 4096}, "sequence_len: 4096  (the model's folder allows 2048 tokens"),
    ({"context_parallel_size": 2}, "(one model and one sequence are on one GPU)"),
]


@pytest.mark.parametrize("keys,said", REFUSALS, ids=[f"{number}-{next(iter(keys))}" for number, (keys, _) in enumerate(REFUSALS)])
def test_refusals_are_said_and_kept_as_comments(here, keys, said):
    code, report, _ = imported(here, {"micro_batch_size": 1, "base_model": "MODEL", **keys}, "--from", "axolotl")
    assert code == 2
    refused = report.split("refused: not possible here")[1]
    assert said in refused
    comments = [line for line in (here / "run.yaml").read_text().splitlines() if line.startswith("# refused: ")]
    assert len(comments) == refused.count("\n  line ")


# What is harmless, or has a setting here, does not fail a file: (program, keys, settings).
ACCEPTED = [
    ("axolotl", {"shuffle_merged_datasets": False}, {"data.shuffle": False}),
    ("axolotl", {"curriculum_sampling": True}, {"data.shuffle": False}),
    ("axolotl", {"excess_length_strategy": "truncate"}, {"data.too_long": "cut"}),
    ("axolotl", {"batch_size": 8, "micro_batch_size": 2}, {"trainer.gradient_accumulation": 4}),
    ("axolotl", {"chat_template": "chatml"}, {}),
    ("axolotl", {"chat_template": "qwen_25", "base_model": "qwen2"}, {}),
    ("axolotl", {"special_tokens": {"eos_token": "<|im_end|>", "pad_token": "x"}}, {}),
    ("axolotl", {"output_dir": "./"}, {"output": "."}),
    ("axolotl", {"tensor_parallel_size": 1, "fsdp": None, "deepspeed": None}, {}),
    ("axolotl", {"deepspeed": "deepspeed_configs/zero3_bf16.json"}, {"parallel.shard": "full"}),
    ("axolotl", {"deepspeed": "deepspeed_configs/zero1.json"}, {"parallel.shard": "optimizer"}),
    ("axolotl", {"fsdp": ["full_shard", "auto_wrap"], "fsdp_config": {"fsdp_offload_params": False}}, {"parallel.shard": "full"}),
    ("axolotl", {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": False}}, {"parallel.shard": "gradients"}),
    ("axolotl", {"dp_shard_size": 4, "dp_replicate_size": 2}, {"parallel.shard": "full", "parallel.replicate": 2}),
    ("axolotl", {"dp_shard_size": 4, "fsdp_version": 2, "fsdp_config": {"reshard_after_forward": False}}, {"parallel.shard": "gradients"}),
    ("axolotl", {"dp_shard_size": 1, "dp_replicate_size": 1}, {}),
    ("huggingface", {"fsdp": "shard_grad_op auto_wrap"}, {"parallel.shard": "gradients"}),
    ("accelerate", {"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}}, {"parallel.shard": "full"}),
    ("accelerate", {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 1}}, {"parallel.shard": "optimizer"}),
    ("deepspeed", {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}}}, {"parallel.shard": "full"}),
    ("huggingface", {"deepspeed": {"zero_optimization": {"stage": 2}}}, {"parallel.shard": "gradients"}),
    ("axolotl", {"hub_model_id": "me/mine"}, {}),
    ("llama-factory", {"template": "llama3", "model_name_or_path": "llama3"}, {}),
    ("llama-factory", {"packing": True}, {"data.packing": True}),
    ("llama-factory", {"mask_history": True, "train_on_prompt": False}, {"data.train_on": "last"}),
    ("llama-factory", {"train_on_prompt": False, "mask_history": True}, {"data.train_on": "last"}),
    ("llama-factory", {"pure_bf16": True}, {"model.dtype": "bf16", "trainer.optimizer_states": "bf16"}),
    ("llama-factory", {"disable_shuffling": True, "enable_thinking": True}, {"data.shuffle": False}),
    ("trl", {"chat_template": TEMPLATE}, {"data.chat_template": TEMPLATE}),
    ("trl", {"chat_template_path": "mine.jinja"}, {"data.chat_template": "mine.jinja"}),
    ("trl", {"push_to_hub": True, "trust_remote_code": True}, {}),
    ("trl", {"torch_dtype": "bfloat16", "bf16": True}, {"model.dtype": "bf16"}),
    ("trl", {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-5}, "learning_rate": 1e-4}, {"trainer.min_lr_ratio": 0.1}),
    ("huggingface", {"dataloader_in_order": True, "train_sampling_strategy": "random", "warmup_steps": 0.05, "max_steps": 100}, {"trainer.warmup_ratio": 0.05}),
    ("huggingface", {"warmup_steps": 5, "warmup_ratio": 0.1}, {"trainer.warmup_steps": 5}),
]
SMALLEST = {"accelerate": {"num_processes": 2}, "deepspeed": {"train_micro_batch_size_per_gpu": 2},
            "axolotl": {"base_model": "MODEL", "micro_batch_size": 1}, "trl": {"model_name_or_path": "MODEL", "dataset_name": "a.jsonl"},
            "llama-factory": {"model_name_or_path": "MODEL", "dataset": "mine", "dataset_dir": "sets"}, "huggingface": {"output_dir": "a/b"}}


@pytest.mark.parametrize("program,keys,settings", ACCEPTED, ids=[f"{number}-{next(iter(keys))}" for number, (_, keys, _) in enumerate(ACCEPTED)])
def test_what_is_harmless_does_not_fail_a_file(here, program, keys, settings):
    code, report, run = imported(here, {**SMALLEST[program], **keys}, "--from", program)
    assert code == 0, group(report, "refused")
    for key, value in settings.items():
        found = run
        for part in key.split("."):
            found = found[part]
        assert found == value


def test_what_is_said_of_templates(here):
    """A program's copy of the folder's own template is noted, never called harmless."""
    _, report, _ = imported(here, {**SMALLEST["llama-factory"], "template": "llama3", "model_name_or_path": "llama3"})
    assert "the chat template of the model's folder is used, not LLaMA-Factory's copy" in group(report, "noted")
    code, report, _ = imported(here, {**SMALLEST["llama-factory"], "template": "gemma"})
    assert code == 2 and "template: gemma" in group(report, "refused")


def test_sequence_length_of_a_model_to_come(here):
    """A Hub name leaves the model to --model; the length must not be held against a model that is not there."""
    for content in ({"base_model": "org/name", "adapter": "lora", "sequence_len": 8192, "micro_batch_size": 1}, {"base_model": "org/name", "sequence_len": 8192},
                    {"model_name_or_path": "org/name", "max_length": 8192, "packing": True}):
        code, _, run = imported(here, content)
        assert code == 2 and run["data"]["seq_len"] == 8192
