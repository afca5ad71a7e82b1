"""`lockstep config import`: what becomes of every key of other programs' files, and that the run file loads."""
import json
import subprocess

import pytest
import yaml

from support.lockstep import LOCKSTEP

AXOLOTL = {
    "base_model": "MODEL", "model_type": "LlamaForCausalLM", "load_in_8bit": False, "load_in_4bit": True, "strict": False,
    "datasets": [{"path": "chat.jsonl", "type": "chat_template", "field_messages": "turns", "split": "train"}],
    "dataset_prepared_path": None, "val_set_size": 0.05, "output_dir": "./outputs/first", "adapter": "qlora", "sequence_len": 64,
    "sample_packing": True, "pad_to_sequence_len": True, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_target_linear": True,
    "gradient_accumulation_steps": 4, "micro_batch_size": 2, "num_epochs": 3, "optimizer": "adamw_bnb_8bit", "lr_scheduler": "cosine",
    "learning_rate": 0.0002, "train_on_inputs": True, "bf16": "auto", "tf32": False, "gradient_checkpointing": "offload", "logging_steps": 1,
    "flash_attention": True, "warmup_steps": 10, "evals_per_epoch": 4, "saves_per_epoch": 1, "weight_decay": 0.01, "wandb_project": "x",
    "special_tokens": {"pad_token": "<pad>"},
}
LLAMA_FACTORY = {
    "model_name_or_path": "MODEL", "trust_remote_code": False, "stage": "sft", "do_train": True, "finetuning_type": "lora", "lora_rank": 8,
    "lora_target": "q_proj,v_proj", "dataset": "mine", "template": "llama3", "cutoff_len": 64, "max_samples": 1000, "overwrite_cache": True,
    "preprocessing_num_workers": 16, "output_dir": "saves/llama3/lora", "logging_steps": 10, "save_steps": 500, "plot_loss": True,
    "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "learning_rate": 1.0e-4, "num_train_epochs": 3.0,
    "lr_scheduler_type": "cosine", "warmup_steps": 5, "bf16": True, "ddp_timeout": 180000000, "quantization_bit": 8, "val_size": 0.1,
    "per_device_eval_batch_size": 1, "eval_strategy": "steps", "eval_steps": 50, "dataset_dir": "sets",
}
HUGGING_FACE = {
    "output_dir": "out/run", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 3e-4, "weight_decay": 0.0,
    "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-6, "max_grad_norm": 0.5, "max_steps": 200, "num_train_epochs": 3.0, "lr_scheduler_type": "SchedulerType.COSINE",
    "lr_scheduler_kwargs": {"min_lr_rate": 0.2}, "warmup_ratio": 0.05, "optim": "OptimizerNames.ADAMW_TORCH_FUSED", "bf16": True, "fp16": False,
    "eval_strategy": "steps", "eval_steps": 0.25, "save_strategy": "no", "save_steps": 500, "seed": 7, "report_to": ["tensorboard"],
    "dataloader_num_workers": 2, "dataloader_drop_last": True, "ddp_backend": "gloo", "ddp_bucket_cap_mb": 50, "fsdp": [], "deepspeed": None,
    "fsdp_config": {"min_num_params": 0}, "torch_compile": False, "push_to_hub": False, "push_to_hub_token": "<TOKEN>", "accelerator_config": {"split_batches": False},
    "gradient_checkpointing": True, "label_smoothing_factor": 0.0, "group_by_length": False, "local_rank": 0, "logging_first_step": False,
}


@pytest.fixture
def here(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 128}))
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "dataset_info.json").write_text(json.dumps({"mine": {"file_name": "mine.json", "formatting": "alpaca"}}))
    return tmp_path


def lockstep(here, *args):
    return subprocess.run([LOCKSTEP, "config", *args], cwd=here, capture_output=True, text=True, timeout=60)


def imported(here, content, *args, suffix="yaml"):
    """(exit code, report, run file as nested keys); the run file must load."""
    content = {key: "model" if value == "MODEL" else value for key, value in content.items()}
    (here / f"theirs.{suffix}").write_text(json.dumps(content, indent=1) if suffix == "json" else yaml.safe_dump(content, sort_keys=False))
    (here / "run.yaml").unlink(missing_ok=True)
    done = lockstep(here, "import", f"theirs.{suffix}", "--output", "run.yaml", *args)
    assert done.stderr == "", done.stderr
    shown = lockstep(here, "show", "-f", "run.yaml")
    assert shown.returncode == 0, shown.stderr
    return done.returncode, done.stdout, yaml.safe_load((here / "run.yaml").read_text())


def test_axolotl(here):
    code, report, run = imported(here, AXOLOTL)
    assert (code, report.splitlines()[-2].split(":")[0]) == (0, "Axolotl file")
    assert run == {
        "name": "first", "output": "./outputs",
        "model": {"path": "model", "dtype": "bf16", "load_in_4bit": True},
        "lora": {"enabled": True, "rank": 8, "alpha": 16, "dropout": 0.05, "target_modules": ["all-linear"]},
        "data": {"path": "chat.jsonl", "format": "auto", "messages_field": "turns", "seq_len": 64, "packing": True, "validation_fraction": 0.05, "train_on": "all"},
        "trainer": {"batch_size": 2, "gradient_accumulation": 4, "num_epochs": 3, "learning_rate": 0.0002, "lr_schedule": "cosine", "min_lr_ratio": 0,
                    "warmup_steps": 10, "optimizer": "adamw_8bit", "beta2": 0.999, "weight_decay": 0.01, "recompute": "blocks", "offload_checkpoints": True, "log_interval": 1},
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
    assert run["data"] == {"path": "sets/mine.json", "seq_len": 64, "max_samples": 1000, "validation_fraction": 0.1}
    assert run["trainer"]["eval_interval"] == 50 and run["trainer"]["weight_decay"] == 0 and run["trainer"]["recompute"] == "blocks"


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_training_arguments(here, suffix):
    code, report, run = imported(here, HUGGING_FACE, suffix=suffix)
    assert code == 0, report
    assert "Hugging Face file: " in report
    run["trainer"]["epsilon"] = float(run["trainer"]["epsilon"])  # PyYAML takes 1e-06 for a text
    assert run == {
        "name": "run", "output": "out",
        "model": {"dtype": "bf16"},
        "data": {"workers": 2},
        "parallel": {"bucket_cap_mb": 50},
        "monitor": {"tensorboard": True},
        "trainer.distributed": {"backend": "gloo"},
        "trainer": {"batch_size": 4, "gradient_accumulation": 2, "learning_rate": 3e-4, "weight_decay": 0, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-6,
                    "max_grad_norm": 0.5, "max_steps": 200, "lr_schedule": "cosine", "min_lr_ratio": 0.2, "warmup_steps": 10, "optimizer": "adamw",
                    "eval_interval": 50, "save_interval": 0, "seed": 7, "recompute": "blocks"},
    }


REFUSALS = [
    ({"base_model": "org/name"}, "base_model: org/name  (no such folder here"),
    ({"datasets": [{"path": "org/set", "type": "alpaca"}]}, "datasets[0].path: org/set  (no file here"),
    ({"datasets": [{"path": "a.jsonl", "type": "alpaca"}, {"path": "b.jsonl", "type": "alpaca"}]}, "datasets[1]: {...}  (one set of records is read"),
    ({"datasets": [{"path": "a.jsonl", "type": {"field_instruction": "q"}}]}, "datasets[0].type: {...}  (records are messages"),
    ({"val_set_size": 200}, "val_set_size: 200  (a number of records"),
    ({"warmup_ratio": 0.1}, "warmup_ratio: 0.1  (how many steps"),
    ({"optimizer": "came_pytorch"}, "optimizer: came_pytorch  (there is none of this name"),
    ({"lr_scheduler": "one_cycle"}, "lr_scheduler: one_cycle  (there is none of this name"),
    ({"lora_target_modules": r"model\.layers\.(0|1)\..*"}, "(a pattern; list the names"),
    ({"deepspeed": "deepspeed_configs/zero3.json"}, "(every GPU holds the whole model"),
    ({"load_in_4bit": True}, "(quantised weights are frozen"),
    ({"chat_template": "chatml"}, "(the template of the model's folder is used"),
    ({"special_tokens": {"eos_token": "<end>"}}, "special_tokens.eos_token: <end>  (the tokenizer's own"),
    ({"rl": "dpo"}, "rl: dpo  (only supervised training"),
    ({"num_experts": 8}, "(mixture of experts is not built yet)"),
    ({"learning_rate": "fast"}, "learning_rate: fast  (trainer.learning_rate must be a number"),
    ({"frobnicate": 3}, "frobnicate: 3  (not a key this command knows"),
]


@pytest.mark.parametrize("keys,said", REFUSALS, ids=[next(iter(keys)) for keys, _ in REFUSALS])
def test_refusals_are_said_and_kept_as_comments(here, keys, said):
    code, report, _ = imported(here, {"micro_batch_size": 1, **keys}, "--from", "axolotl")
    assert code == 2
    refused = report.split("refused: not possible here")[1]
    assert said in refused
    comments = [line for line in (here / "run.yaml").read_text().splitlines() if line.startswith("# refused: ")]
    assert len(comments) == refused.count("\n  line ")


def test_sequence_length_of_a_model_to_come(here):
    """A Hub name leaves the model to --model; the length must not be held against a model that is not there."""
    for adapter in ("lora", None):
        code, _, run = imported(here, {"base_model": "org/name", "adapter": adapter, "sequence_len": 8192, "micro_batch_size": 1})
        assert code == 2 and run["data"]["seq_len"] == 8192


def test_standard_output_holds_the_run_file_alone(here):
    (here / "theirs.yaml").write_text("base_model: model\nlearning_rate: 1e-4\n")
    done = lockstep(here, "import", "theirs.yaml")
    assert done.returncode == 0 and yaml.safe_load(done.stdout)["trainer"]["learning_rate"] == 1e-4
    assert "learning_rate: 1e-4  ->  trainer.learning_rate = 0.0001" in done.stderr


def test_nothing_is_written_over(here):
    (here / "theirs.yaml").write_text("base_model: model\n")
    (here / "run.yaml").write_text("mine")
    done = lockstep(here, "import", "theirs.yaml", "--output", "run.yaml")
    assert done.returncode == 2 and "exists" in done.stderr and (here / "run.yaml").read_text() == "mine"


@pytest.mark.parametrize("text,said", [("a: [1\n", "not valid YAML"), ("- 1\n", "must be sections"), ("", "holds no settings"), ("seed: 1\nseed: 2\n", "seed is set twice, on lines 1 and 2")])
def test_files_that_cannot_be_read(here, text, said):
    (here / "theirs.yaml").write_text(text)
    done = lockstep(here, "import", "theirs.yaml", "--from", "huggingface")
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
