"""`lockstep config import`: whose file it is. torchtune, launchers' files and LLaMA-Factory v1; other trainings and other programs end it by name;
what is written, and files that cannot be read."""
import pytest
import yaml

from e2e.test_config_import import AXOLOTL, LLAMA_FACTORY, STOPPED_DATASETS, group, here, imported, lockstep, write  # noqa: F401

TORCHTUNE = {
    "output_dir": "out/tt", "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "path": "model/original/tokenizer.model", "max_seq_len": 64},
    "model": {"_component_": "torchtune.models.llama3_1.qlora_llama3_1_8b", "lora_attn_modules": ["q_proj", "output_proj"], "apply_lora_to_mlp": True,
              "apply_lora_to_output": False, "lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.0},
    "checkpointer": {"_component_": "torchtune.training.FullModelHFCheckpointer", "checkpoint_dir": "model", "checkpoint_files": ["a.safetensors"],
                     "recipe_checkpoint": None, "output_dir": "${output_dir}", "model_type": "LLAMA3"},
    "dataset": {"_component_": "torchtune.datasets.chat_dataset", "source": "json", "data_files": "chat.jsonl", "conversation_column": "talk",
                "conversation_style": "sharegpt", "packed": True, "train_on_input": False},
    "optimizer": {"_component_": "torch.optim.AdamW", "fused": True, "weight_decay": 0.02, "lr": 3e-4},
    "lr_scheduler": {"_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup", "num_warmup_steps": 100},
    "loss": {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"}, "seed": None, "shuffle": True, "batch_size": 2, "epochs": 2,
    "max_steps_per_epoch": 50, "gradient_accumulation_steps": 8, "clip_grad_norm": None, "compile": False, "dtype": "bf16", "device": "cuda",
    "enable_activation_checkpointing": True, "enable_activation_offloading": False, "metric_logger": {"_component_": "x", "log_dir": "y"},
    "log_every_n_steps": 1, "profiler": {"_component_": "z", "enabled": False},
}
ACCELERATE = {"compute_environment": "LOCAL_MACHINE", "debug": False, "distributed_type": "MULTI_GPU", "downcast_bf16": "no", "machine_rank": 0, "main_training_function": "main",
              "mixed_precision": "bf16", "num_machines": 1, "num_processes": 2, "rdzv_backend": "static", "same_network": True, "tpu_env": [], "tpu_use_cluster": False,
              "use_cpu": False, "gpu_ids": "all"}
DEEPSPEED = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", "gradient_clipping": 0.5, "bf16": {"enabled": True}, "fp16": {"enabled": False},
             "zero_optimization": {"stage": 0}, "steps_per_print": 10, "wall_clock_breakdown": False,
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": "auto", "weight_decay": 0.1}}}
V1 = {"model": "MODEL", "model_class": "llm", "peft_config": {"name": "lora", "r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "target_modules": "all"},
      "kernel_config": {"name": "auto"}, "quant_config": {"name": "bnb", "quantization_bit": 4}, "train_dataset": "chat.jsonl", "output_dir": "outputs/v1",
      "micro_batch_size": 1, "cutoff_len": 64, "learning_rate": 1e-4, "max_steps": 10, "sample_backend": "hf", "max_new_tokens": 128}

MLX = {"model": "mlx-community/Llama-3.2-1B-Instruct", "train": True, "fine_tune_type": "lora", "data": "some/set", "num_layers": 16, "batch_size": 4, "iters": 1000,
       "val_batches": 25, "learning_rate": 1e-5, "steps_per_report": 10, "adapter_path": "adapters", "max_seq_length": 2048,
       "lora_parameters": {"keys": ["self_attn.q_proj"], "rank": 8, "scale": 20.0, "dropout": 0.0}}


def test_torchtune(here):
    code, report, run = imported(here, TORCHTUNE)
    assert code == 0 and "torchtune file: " in report, report
    assert run["lora"] == {"enabled": True, "rank": 8, "alpha": 16, "dropout": 0, "target_modules": ["q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
    assert run["model"] == {"path": "model", "dtype": "bf16", "load_in_4bit": True}
    assert run["data"] == {"path": "chat.jsonl", "format": "sharegpt", "messages_field": "talk", "packing": True, "seq_len": 64, "train_on": "auto", "shuffle": True,
                           "validation_fraction": 0}
    assert run["trainer"] == {"learning_rate": 0.0003, "batch_size": 2, "gradient_accumulation": 8, "max_steps": 100, "lr_schedule": "cosine", "warmup_steps": 100,
                              "min_lr_ratio": 0, "optimizer": "adamw", "weight_decay": 0.02, "beta2": 0.999, "max_grad_norm": 0, "recompute": "blocks", "log_interval": 1}
    _, report, run = imported(here, {**TORCHTUNE, "data_parallel_shard_dim": -1, "data_parallel_replicate_dim": 2})
    assert run["parallel"] == {"shard": "full", "replicate": 2}, report
    code, report, _ = imported(here, {**TORCHTUNE, "dataset": {"_component_": "torchtune.datasets.alpaca_cleaned_dataset"}})
    assert code == 2 and "brings a dataset of the Hub, in words of its own" in report


def test_files_of_launchers(here):
    code, report, run = imported(here, ACCELERATE)
    assert code == 0 and "accelerate file: " in report, report
    assert run == {"model": {"dtype": "bf16"}, "parallel": {"ranks": 2, "nnodes": 1, "node_rank": 0}}
    code, report, run = imported(here, {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}, "mixed_precision": "no"})
    assert code == 0 and run["parallel"]["shard"] == "full" and "mixed_precision" in group(report, "ignored"), report
    _, report, run = imported(here, {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3, "offload_param_device": "cpu"}})
    assert run["parallel"]["shard"] == "full" and "deepspeed_config" in group(report, "noted"), report
    _, report, run = imported(here, {**ACCELERATE, "distributed_type": "FSDP"})
    assert run["parallel"]["shard"] == "full", report
    _, report, run = imported(here, {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "NO_SHARD"}})
    assert "shard" not in run["parallel"], report
    code, report, run = imported(here, DEEPSPEED, suffix="json")
    assert code == 0 and "DeepSpeed file: " in report, report
    assert run == {"model": {"dtype": "bf16"}, "trainer": {"learning_rate": 0.0001, "batch_size": 2, "optimizer": "adamw", "weight_decay": 0.1, "beta1": 0.9,
                                                           "beta2": 0.95, "max_grad_norm": 0.5}}
    code, report, run = imported(here, {**DEEPSPEED, "zero_optimization": {"stage": 3}}, suffix="json")
    assert code == 0 and run["parallel"] == {"shard": "full"}, report


def test_llama_factory_v1(here):
    code, report, run = imported(here, V1)
    assert code == 0 and "LLaMA-Factory v1 file: " in report, report
    assert run["lora"] == {"enabled": True, "rank": 16, "alpha": 32, "dropout": 0.05, "target_modules": ["all-linear"]}
    assert run["model"] == {"path": "model", "load_in_4bit": True} and run["data"]["seq_len"] == 64
    code, report, _ = imported(here, {**V1, "dist_config": {"name": "fsdp2"}})
    assert code == 2 and "dist_config" in group(report, "refused")


# Files of another training end the import, by name, and write nothing: (keys, the key that is named).
STOPPED = [
    ({"base_model": "MODEL", "rl": "dpo", "datasets": [{"path": "a", "type": "x"}]}, "rl: dpo, a file of Axolotl: preference"),
    ({"base_model": "MODEL", "reward_model": True, "micro_batch_size": 1}, "reward_model: true"),
    ({"base_model": "MODEL", "datasets": [{"path": "a.jsonl", "type": "bradley_terry.chat_template"}]}, "datasets[0].type: bradley_terry"),
    ({"base_model": "MODEL", "processor_type": "AutoProcessor", "micro_batch_size": 1}, "models of images"),
    *[({"model_name_or_path": "MODEL", "stage": stage, "dataset": "mine", "template": "x"}, f"stage: {stage}") for stage in ("dpo", "kto", "rm", "ppo")],
    ({"model_name_or_path": "MODEL", "stage": "sft", "dataset": "mine", "image_max_pixels": 262144}, "image_max_pixels"),
    *[({"model_name_or_path": "MODEL", "dataset": name, "dataset_dir": "sets", "cutoff_len": 8}, f"dataset {name}.") for name in STOPPED_DATASETS],
    ({"model_name_or_path": "MODEL", "dataset_mixture": {}, "beta": 0.1, "loss_type": "sigmoid"}, "beta: 0.1, a file of TRL"),
    ({"model_name_or_path": "MODEL", "dataset_name": "x", "num_generations": 8}, "num_generations: 8"),
    ({**TORCHTUNE, "loss": {"_component_": "torchtune.rlhf.loss.DPOLoss"}}, "a file of torchtune: preference"),
    ({**TORCHTUNE, "model": {"_component_": "torchtune.models.llama3_2_vision.llama3_2_vision_11b"}}, "models of images"),
    ({"training_method": "LORA", "model_type": "FLUX_DEV_1", "base_model_name": "x", "output_model_format": "SAFETENSORS", "batch_size": 4,
      "learning_rate": 1e-4, "resolution": "768"}, "a file of OneTrainer: models of images"),
    ({"pretrained_model_name_or_path": "sd", "network_dim": 32, "network_alpha": 16, "max_train_steps": 1600, "learning_rate": 1e-4, "lr_scheduler": "cosine",
      "output_dir": "out"}, "a file of kohya's sd-scripts: models of images"),
    (MLX, "a file of mlx-lm: files of this program are not read"),
    ({"checkpoint_dir": "model", "out_dir": "out", "precision": "bf16-true", "lora_r": 32, "lora_alpha": 16, "logger_name": "csv",
      "data": {"class_path": "litgpt.data.Alpaca2k"}, "train": {"micro_batch_size": 2}}, "a file of LitGPT: "),
    ({"model": "MODEL", "train_type": "lora", "dataset": ["a#500"], "torch_dtype": "bfloat16", "num_train_epochs": 1, "lora_rank": 8,
      "target_modules": "all-linear"}, "a file of ms-swift: "),
]


@pytest.mark.parametrize("content,said", STOPPED, ids=range(len(STOPPED)))
def test_other_trainings_end_the_import(here, content, said):
    (here / "run.yaml").unlink(missing_ok=True)
    done = lockstep(here, "config", "import", write(here, content), "--output", "run.yaml")
    assert done.returncode == 2 and said in done.stderr and "Nothing was written" in done.stderr, done.stdout + done.stderr
    assert not (here / "run.yaml").exists() and done.stdout == ""


# Keys of a program among many that are none of its: the file is of a program that nobody here knows.
STRANGERS = [
    ({"model": {"model_name": "x"}, "lr_scheduler": "cosine", "frames": 8, "steps": 100, "rewards": []}, "Axolotl", "axolotl"),
    ({"max_length": 8, "run": 1, "hidden": 2, "layers": 3}, "TRL", "trl"),
]


@pytest.mark.parametrize("content,program,word", STRANGERS)
def test_a_few_shared_keys_make_no_file_of_a_program(here, content, program, word):
    (here / "run.yaml").unlink(missing_ok=True)
    done = lockstep(here, "config", "import", write(here, content), "--output", "run.yaml")
    assert done.returncode == 2 and f"most of its {len(content)} keys are none of that program's" in done.stderr, done.stderr
    assert not (here / "run.yaml").exists() and f"--from {word}" in done.stderr and program in done.stderr
    code, report, _ = imported(here, content, "--from", word)  # whoever knows better says so
    assert code == 2 and f"not a key of {program}" in report


def test_what_a_run_file_still_needs_is_said_after_it_was_written(here):
    (here / "run.yaml").unlink(missing_ok=True)
    done = lockstep(here, "config", "import", write(here, {**ACCELERATE, "num_machines": 2}), "--output", "run.yaml")
    assert done.returncode == 2 and "wrote run.yaml" in done.stdout and "Set --master-addr to the address of machine 0" in done.stderr
    assert yaml.safe_load((here / "run.yaml").read_text())["parallel"]["nnodes"] == 2


@pytest.mark.parametrize("content", [
    {"base_model": "MODEL", "adapter": "lora", "lora_model_dir": "./old", "micro_batch_size": 1},
    {"model_name_or_path": "MODEL", "adapter_name_or_path": "./old", "stage": "sft", "cutoff_len": 8},
])
def test_an_adapter_that_is_trained_on_gives_its_own_shape(here, content):
    """Defaults of theirs for rank and targets would contradict the folder."""
    (here / "run.yaml").unlink(missing_ok=True)
    lockstep(here, "config", "import", write(here, content), "--output", "run.yaml")
    assert yaml.safe_load((here / "run.yaml").read_text())["lora"] == {"enabled": True, "adapters": ["./old"]}


def test_train_says_of_what_program_a_file_is_that_cannot_be_read(here):
    done = lockstep(here, "train", "-f", write(here, MLX), "--dry-run")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "theirs.yaml is a file of mlx-lm, not a run file: files of this program are not read. Write a run file by hand" in done.stderr


@pytest.mark.parametrize("content,program", [(AXOLOTL, "Axolotl"), (LLAMA_FACTORY, "LLaMA-Factory"), (TORCHTUNE, "torchtune"), (ACCELERATE, "accelerate"), (V1, "LLaMA-Factory v1"),
                                             ({"model_name_or_path": "MODEL", "dataset_name": "x", "use_peft": True, "max_length": 8, "chat_template": "{{ 1 }}"}, "TRL")])
def test_train_names_the_command_for_a_foreign_file(here, content, program):
    done = lockstep(here, "train", "-f", write(here, content), "--dry-run")
    assert done.returncode == 2 and f"theirs.yaml is a file of {program} (" in done.stderr, done.stderr
    assert "lockstep config import theirs.yaml --output run.yaml" in done.stderr and len(done.stderr.splitlines()) == 1


def test_standard_output_holds_the_run_file_alone(here):
    (here / "theirs.yaml").write_text("base_model: model\nlearning_rate: 1e-4\n")
    done = lockstep(here, "config", "import", "theirs.yaml")
    assert done.returncode == 0 and yaml.safe_load(done.stdout)["trainer"]["learning_rate"] == 1e-4
    assert "learning_rate: 1e-4  ->  trainer.learning_rate = 0.0001" in done.stderr


def test_nothing_is_written_over(here):
    (here / "theirs.yaml").write_text("base_model: model\n")
    (here / "run.yaml").write_text("mine")
    done = lockstep(here, "config", "import", "theirs.yaml", "--output", "run.yaml")
    assert done.returncode == 2 and "exists" in done.stderr and (here / "run.yaml").read_text() == "mine"


@pytest.mark.parametrize("text,said", [("a: [1\n", "not valid YAML"), ("- 1\n", "must be sections"), ("", "holds no settings"), ("seed: 1\nseed: 2\n", "seed is set twice, on lines 1 and 2")])
def test_files_that_cannot_be_read(here, text, said):
    (here / "theirs.yaml").write_text(text)
    done = lockstep(here, "config", "import", "theirs.yaml", "--from", "huggingface")
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
