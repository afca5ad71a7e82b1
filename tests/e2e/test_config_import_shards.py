"""`lockstep config import`: what becomes of DeepSpeed's stages, FSDP's strategies and their groups. Nothing that shards is lost without a word."""
import json

import pytest

from e2e.test_config_import import SMALLEST, group, here, imported, lockstep  # noqa: F401

STAYS = "weights and states stay on the GPUs"
GROUPS = "set parallel.replicate to the number of groups"
ACCELERATE = {"compute_environment": "LOCAL_MACHINE", "num_machines": 1, "num_processes": 8}
TWO_MACHINES = {**ACCELERATE, "num_machines": 2, "num_processes": 16, "machine_rank": 0, "main_process_ip": "10.0.0.1", "main_process_port": 29500}
WORLD_16 = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
ZERO_3 = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "stage3_max_live_parameters": 1e9}, "bf16": {"enabled": "auto"}}


@pytest.fixture(scope="module")
def files(here):  # noqa: F811
    (here / "zero3.json").write_text(json.dumps(ZERO_3))
    (here / "mics.json").write_text(json.dumps({"zero_optimization": {"stage": 3, "mics_shard_size": 8}}))
    (here / "typo.json").write_text(json.dumps({"zero_optimisation": {"stage": 3}}))
    (here / "fc.json").write_text(json.dumps({"fsdp_version": 2, "reshard_after_forward": False, "activation_checkpointing": True}))
    (here / "list.json").write_text("[1]")
    return here


def zero(**keys):
    return {"zero_optimization": keys}


# (program, keys, section parallel, what is noted)
READ = [
    ("deepspeed", zero(stage=3, mics_shard_size=8), {"shard": "full"}, ["mics_shard_size: 8", GROUPS]),
    ("deepspeed", {**WORLD_16, **zero(stage=3, mics_shard_size=8)}, {"shard": "full", "replicate": 2}, []),
    ("deepspeed", {**WORLD_16, **zero(stage=3, mics_shard_size=16)}, {"shard": "full"}, []),
    ("deepspeed", zero(stage=3, mics_shard_size=-1), {"shard": "full"}, []),
    ("deepspeed", zero(mics_shard_size=8, stage=2), {"shard": "gradients"}, []),
    ("deepspeed", zero(stage=3, zero_hpz_partition_size=8, zero_quantized_weights=True), {"shard": "full"},
     ["zero_hpz_partition_size: 8", GROUPS, "takes more memory", "zero_quantized_weights: true"]),
    ("deepspeed", {**WORLD_16, **zero(stage=3, zero_hpz_partition_size=8)}, {"shard": "full", "replicate": 2}, ["takes more memory"]),
    ("deepspeed", zero(stage=3, zero_hpz_partition_size=1, zero_quantized_gradients=False), {"shard": "full"}, []),
    ("deepspeed", zero(stage=2, cpu_offload=True), {"shard": "gradients"}, ["zero_optimization.cpu_offload: true", STAYS]),
    ("deepspeed", zero(stage=3, cpu_offload_params=True), {"shard": "full"}, [STAYS]),
    ("deepspeed", zero(stage=2, cpu_offload=False, offload_optimizer={"device": "none"}), {"shard": "gradients"}, []),
    ("deepspeed", {"zero_optimization": False}, None, []),
    ("huggingface", {"deepspeed": zero(stage=3, mics_shard_size=8)}, {"shard": "full"}, ["deepspeed.zero_optimization.mics_shard_size: 8"]),
    ("huggingface", {"deepspeed": "zero3.json"}, {"shard": "full"}, ["deepspeed[zero3.json].zero_optimization.offload_optimizer", STAYS]),
    ("huggingface", {"deepspeed": "examples/deepspeed/ds_z3_config.json"}, {"shard": "full"}, []),
    ("llama-factory", {"deepspeed": "examples/deepspeed/ds_z3_offload_config.json"}, {"shard": "full"}, [STAYS]),
    ("llama-factory", {"deepspeed": "examples/deepspeed/ds_z2_config.json"}, {"shard": "gradients"}, []),
    ("llama-factory", {"deepspeed": "examples/deepspeed/ds_z0_config.json"}, None, []),
    ("axolotl", {"deepspeed": "deepspeed_configs/zero3_bf16_cpuoffload_all.json"}, {"shard": "full"}, [STAYS]),
    ("accelerate", {**ACCELERATE, "num_processes": 16, "distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "mics.json", "zero3_init_flag": True}},
     {"ranks": 16, "nnodes": 1, "shard": "full", "replicate": 2}, []),
    ("accelerate", {**ACCELERATE, "distributed_type": "MULTI_GPU", "deepspeed_config": {"zero_stage": 3}}, {"ranks": 8, "nnodes": 1}, []),
    ("huggingface", {"fsdp": True, "fsdp_config": {"reshard_after_forward": False}}, {"shard": "gradients"}, []),
    ("huggingface", {"fsdp_config": {"reshard_after_forward": False}, "fsdp": "auto_wrap"}, {"shard": "gradients"}, []),
    ("huggingface", {"fsdp": ["full_shard", "auto_wrap"], "fsdp_config": {"fsdp_reshard_after_forward": False}}, {"shard": "gradients"}, []),
    ("huggingface", {"fsdp": True, "fsdp_config": {"reshard_after_forward": 8}}, {"shard": "full"}, ["fsdp_config.reshard_after_forward: 8", "parallel.replicate"]),
    ("huggingface", {"fsdp": True, "fsdp_config": {"min_num_params": 0}}, {"shard": "full"}, []),
    ("huggingface", {"fsdp": True, "fsdp_config": "fc.json"}, {"shard": "gradients"}, []),
    ("huggingface", {"fsdp": "hybrid_shard"}, {"shard": "full"}, [GROUPS]),
    ("huggingface", {"fsdp": "", "fsdp_config": {"reshard_after_forward": False}}, None, []),
    ("axolotl", {"fsdp_version": 2, "fsdp_config": {"offload_params": True}}, {"shard": "full"}, [STAYS]),
    ("axolotl", {"dp_shard_size": 4, "fsdp_config": {"state_dict_type": "FULL_STATE_DICT"}}, {"shard": "full"}, []),
    ("accelerate", {**TWO_MACHINES, "distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}},
     {"ranks": 8, "nnodes": 2, "node_rank": 0, "master_addr": "10.0.0.1", "master_port": 29500, "shard": "full", "replicate": 2}, []),
    ("accelerate", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD_ZERO2"}},
     {"ranks": 8, "nnodes": 1, "shard": "gradients"}, []),
    ("accelerate", {**ACCELERATE, "distributed_type": "NO", "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}}, {"ranks": 8, "nnodes": 1}, []),
    ("accelerate", {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {}, "fsdp_config": {}}, {"ranks": 8, "nnodes": 1, "shard": "gradients"}, []),
    ("torchtune", {"fsdp_cpu_offload": True}, None, ["fsdp_cpu_offload: true", STAYS]),
    ("torchtune", {"data_parallel_shard_dim": -1, "fsdp_reshard_after_forward": False}, {"shard": "gradients"}, []),
    ("torchtune", {"data_parallel_shard_dim": 4, "fsdp_reshard_after_forward": True}, {"shard": "full"}, []),
]
SMALL = {**SMALLEST, "accelerate": {}, "torchtune": {"batch_size": 2}}


@pytest.mark.parametrize("program,keys,parallel,noted", READ, ids=[f"{number}-{program}" for number, (program, *_) in enumerate(READ)])
def test_what_shards_is_read_or_noted(files, program, keys, parallel, noted):
    code, report, run = imported(files, {**SMALL[program], **keys}, "--from", program)
    assert code == 0, group(report, "refused")
    assert (run or {}).get("parallel") == parallel, report
    notes = group(report, "noted")
    for said in noted:
        assert said in notes, report
    assert noted or notes == "", report


REFUSED = [
    ("deepspeed", zero(stgae=3), "zero_optimization.stgae: 3  (not a key of DeepSpeed that this command knows; did you mean stage?)"),
    ("deepspeed", zero(stage=3, mics_shrad_size=8), "did you mean mics_shard_size?"),
    ("deepspeed", {"zero_optimization": True}, "zero_optimization: true  (must be a map with a stage, such as {stage: 3})"),
    ("deepspeed", {**WORLD_16, **zero(stage=3, mics_shard_size=6)}, "16 ranks cannot be groups of 6"),
    ("huggingface", {"deepspeed": "typo.json"}, "deepspeed[typo.json].zero_optimisation: {...}  (not a key of DeepSpeed that this command knows; did you mean zero_optimization?)"),
    ("huggingface", {"deepspeed": "list.json"}, "deepspeed: list.json  (its file is not JSON"),
    ("huggingface", {"deepspeed": "blitz9.json"}, "(say it by parallel.shard"),
    ("huggingface", {"fsdp": {"sharding_strategy": "FULL_SHARD"}}, "fsdp: {...}  (must be true or a strategy; a map is fsdp_config)"),
    ("huggingface", {"fsdp": "ful_shard"}, "fsdp: ful_shard  (ful_shard is not a strategy of FSDP; did you mean full_shard?)"),
    ("huggingface", {"fsdp": "full_shard auto_warp"}, "auto_warp is not a strategy of FSDP; did you mean auto_wrap?"),
    ("huggingface", {"fsdp": "full_shard shard_grad_op"}, "(say it by parallel.shard"),
    ("huggingface", {"fsdp": "shard_grad_op", "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": True}}, "parallel.shard is gradients already, from fsdp."),
    ("huggingface", {"fsdp": True, "fsdp_config": {"reshard_after_foward": False}}, "did you mean reshard_after_forward?"),
    ("huggingface", {"fsdp": True, "fsdp_config": "gone.json"}, "fsdp_config: gone.json  (must be a map, or a JSON file that is here)"),
    ("accelerate", {**ACCELERATE, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stag": 3}}, "did you mean zero_stage?"),
]


@pytest.mark.parametrize("program,keys,said", REFUSED, ids=[f"{number}-{program}" for number, (program, *_) in enumerate(REFUSED)])
def test_what_cannot_be_told_is_refused(files, program, keys, said):
    code, report, _ = imported(files, {**SMALL[program], **keys}, "--from", program)
    assert code == 2 and said in group(report, "refused"), report


@pytest.mark.parametrize("program,keys", [
    ("huggingface", {"fsdp": True, "fsdp_config": {"activation_checkpointing": True}}),
    ("huggingface", {"gradient_checkpointing": False, "fsdp": True, "fsdp_config": {"fsdp_activation_checkpointing": True}}),
    ("huggingface", {"fsdp": True, "fsdp_config": "fc.json"}),
    ("accelerate", {**ACCELERATE, "distributed_type": "FSDP", "fsdp_config": {"fsdp_activation_checkpointing": True}}),
    ("axolotl", {"fsdp_version": 2, "fsdp_config": {"activation_checkpointing": True, "reshard_after_forward": True}}),
])
def test_activation_checkpointing_of_fsdp_recomputes_blocks(files, program, keys):
    code, report, run = imported(files, {**SMALL[program], **keys}, "--from", program)
    assert code == 0 and run["trainer"]["recompute"] == "blocks", report


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_that_forbids_recomputing_is_believed(files, order):
    keys = {"disable_gradient_checkpointing": True, "fsdp": True, "fsdp_config": {"activation_checkpointing": True}}
    code, report, run = imported(files, {**SMALL["llama-factory"], **dict(list(keys.items())[::order])}, "--from", "llama-factory")
    assert code == 0 and run["trainer"]["recompute"] == "none", report


def test_every_key_of_a_section_is_spoken_of(files):
    config = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "state_dict_type": "FULL_STATE_DICT", "some_new_switch": 3, "offload_params": True}
    _, report, _ = imported(files, {**SMALL["huggingface"], "fsdp": True, "fsdp_config": config}, "--from", "huggingface")
    for key in config:
        assert f"fsdp_config.{key}: " in report
    assert "fsdp_config.some_new_switch: 3" in group(report, "ignored")
    _, report, _ = imported(files, {**SMALL["huggingface"], "deepspeed": "zero3.json"}, "--from", "huggingface")
    ignored = group(report, "ignored")
    assert "zero_optimization.stage3_max_live_parameters" in ignored and "deepspeed[zero3.json].bf16: {...}" in ignored
    line = next(line for line in report.splitlines() if "zero_optimization.stage: 3" in line)
    assert "line 2 " in line, "lines are those of the file at hand"


def test_toml_is_named(here):  # noqa: F811
    (here / "llama3.toml").write_text('# torchtitan\n[job]\ndump_folder = "./outputs"\n\n[parallelism]\ndata_parallel_shard_degree = -1\n')
    for args in (["config", "import", "llama3.toml"], ["config", "import", "llama3.toml", "--from", "torchtune"], ["train", "-f", "llama3.toml", "--dry-run"]):
        done = lockstep(here, *args)
        assert done.returncode == 2 and "llama3.toml is TOML, which is not read: config files are YAML or JSON." in done.stderr, done.stderr
    (here / "plain.toml").write_text('seed = 3\nname = "x"\n')
    assert "is TOML" in lockstep(here, "config", "import", "plain.toml").stderr
