"""LoRA, rsLoRA and DoRA against PEFT: training steps, adapter folders both ways, and folding into the model."""
import json
import subprocess

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from parity import reference
from parity.test_families import Logits, config_for, tokens_for
from parity.test_training import DATA, SEQ_LEN, TRAINER, Case
from support.lockstep import LOCKSTEP, train
from support.model_folders import VOCABULARY, load_without_warnings, make_model, save

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
KINDS = {
    "lora": ({"r": 4, "lora_alpha": 6, "target_modules": ALL}, {"rank": 4, "alpha": 6}),
    "query and value": ({"r": 3, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
                        {"rank": 3, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "rslora, one layer": ({"r": 4, "lora_alpha": 4, "target_modules": ALL, "use_rslora": True, "layers_to_transform": [1]},
                          {"rank": 4, "alpha": 4, "rslora": True, "layers_to_transform": [1]}),
    "dora": ({"r": 4, "lora_alpha": 6, "target_modules": ALL, "use_dora": True}, {"rank": 4, "alpha": 6, "dora": True}),
    "whole head": ({"r": 4, "lora_alpha": 6, "target_modules": ["up_proj", "o_proj"], "modules_to_save": ["lm_head"]},
                   {"rank": 4, "alpha": 6, "target_modules": ["up_proj", "o_proj"], "modules_to_save": ["lm_head"]}),
    "whole embedding and head": ({"r": 2, "lora_alpha": 6, "target_modules": ["k_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
                                 {"rank": 2, "alpha": 6, "target_modules": ["k_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
}
REGEX = r".*\.layers\.\d+\.(self_attn\.(q|k|v)_proj|mlp\.(gate|up)_proj)"
KINDS["regex, ranks and alphas by name"] = (
    {"r": 4, "lora_alpha": 6, "target_modules": REGEX, "use_rslora": True, "rank_pattern": {"q_proj": 2, r"layers\.1\.mlp\..*": 3},
     "alpha_pattern": {"k_proj": 3, "model.layers.0.self_attn.v_proj": 9}},
    {"rank": 4, "alpha": 6, "target_modules": ["re:" + REGEX], "rslora": True, "rank_pattern": ["q_proj=2", r"layers\.1\.mlp\..*=3"],
     "alpha_pattern": ["k_proj=3", "model.layers.0.self_attn.v_proj=9"]})
KINDS["dora with exclusions, ranks by name"] = (
    {"r": 4, "lora_alpha": 6, "target_modules": ALL, "use_dora": True, "exclude_modules": ["k_proj", "model.layers.0.mlp.up_proj"],
     "rank_pattern": {"v_proj": 1, "gate_proj": 5}},
    {"rank": 4, "alpha": 6, "dora": True, "exclude_modules": ["k_proj", "model.layers.0.mlp.up_proj"], "rank_pattern": ["v_proj=1", "gate_proj=5"]})
by_kind = pytest.mark.parametrize("kind", KINDS)


def peft_model(model, theirs, drawn=True):
    """PEFT's model with every adapter number drawn: zeros would hide a mistake."""
    torch.manual_seed(11)
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", bias="none", **theirs))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if drawn and "lora_" in name and "magnitude" not in name:
                parameter.copy_(torch.randn_like(parameter) * 0.1)
            elif drawn and parameter.requires_grad:
                parameter.mul_(1 + 0.1 * torch.randn_like(parameter))
    return adapted.eval()


def save_adapter(adapted, folder):
    adapted.save_pretrained(folder)
    return folder


def logits(model, time=24):
    inputs, _ = tokens_for(time)
    with torch.no_grad():
        return model(inputs).logits


def run_from(tmp_path, folder, adapter, trainer, *args, name="run"):
    config, tokens = config_for(tmp_path, folder, Case("lora"), trainer)
    settings = json.loads(config.read_text())
    settings["lora"] = {"adapters": [str(adapter)]} if adapter else settings.get("lora", {})
    config.write_text(json.dumps(settings))
    return train(tmp_path, name, config, *args), tokens


@pytest.mark.parametrize("kind, ranks, family", [(kind, 1, "Qwen2") for kind in KINDS]
                         + [("lora", 2, "Qwen2"), ("lora", 3, "Qwen2"), ("dora", 2, "Qwen2"), ("lora", 1, "Olmo2"), ("dora", 2, "Olmo2")])
def test_twenty_steps_are_those_of_peft(tmp_path, kind, ranks, family):
    theirs, _ = KINDS[kind]
    model = make_model(family, tie_word_embeddings=kind == "lora", **({"pad_token_id": None, "eos_token_id": None} if family == "Olmo2" else {}))
    folder = save(model, tmp_path / "start")
    adapted = peft_model(model, theirs)
    adapter = save_adapter(adapted, tmp_path / "adapter")
    trainer = {**TRAINER, "batch_size": TRAINER["global_batch_size"] // ranks, "learning_rate": 3e-3}
    if theirs.get("use_dora"):
        trainer["weight_decay"] = 0.0  # magnitudes decay here as in transformers' Trainer; the reference loop decays matrices alone
    run, tokens = run_from(tmp_path, folder, adapter, trainer, "--ranks", str(ranks))
    expected = reference.train(Logits(adapted), tokens, trainer, DATA, SEQ_LEN, TRAINER["max_steps"])
    lines = [line for _, line in sorted(run.steps().items())]
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-5)

    # PEFT loads what the run left, and it is what PEFT trained.
    ended = PeftModel.from_pretrained(load_without_warnings(folder), run.folder / "adapter").eval()
    torch.testing.assert_close(logits(ended), logits(adapted), rtol=0, atol=1e-4)
    before, after = (json.loads((path / "adapter_config.json").read_text()) for path in (adapter, run.folder / "adapter"))
    for key in ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_dora", "use_rslora", "layers_to_transform"):
        assert after[key] == before[key], key
    for key in ("target_modules", "exclude_modules", "modules_to_save"):
        assert after[key] == before[key] or sorted(after[key]) == sorted(before[key]), key


@by_kind
def test_a_new_adapter_changes_nothing_and_has_pefts_form(tmp_path, kind):
    theirs, ours = KINDS[kind]
    model = make_model("Llama")
    folder = save(model, tmp_path / "start")
    config, _ = config_for(tmp_path, folder, Case("lora"), {**TRAINER, "batch_size": TRAINER["global_batch_size"], "max_steps": 1, "learning_rate": 1e-12})
    settings = json.loads(config.read_text())
    settings["lora"] = {"enabled": True, **ours}
    config.write_text(json.dumps(settings))
    run = train(tmp_path, "run", config, "--ranks", "1")
    ended = PeftModel.from_pretrained(load_without_warnings(folder), run.folder / "adapter").eval()
    torch.testing.assert_close(logits(ended), logits(model), rtol=0, atol=1e-5)
    reference_names = set(get_peft_model(make_model("Llama"), LoraConfig(task_type="CAUSAL_LM", **theirs)).state_dict())
    assert set(ended.state_dict()) == reference_names
    # A as PEFT draws it: uniform within 1 / sqrt(in).
    for name, parameter in ended.named_parameters():
        if "lora_A" in name:
            bound = parameter.shape[1] ** -0.5
            assert parameter.abs().max() <= bound and parameter.abs().max() > 0.8 * bound and abs(parameter.mean()) < 0.25 * bound
        if "lora_B" in name:
            assert parameter.abs().max() < 1e-9


def merge(*args, code=0):
    done = subprocess.run([LOCKSTEP, "merge", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done


@by_kind
def test_merge_is_pefts_merge(tmp_path, kind):
    theirs, _ = KINDS[kind]
    model = make_model("Llama", tie_word_embeddings=kind == "whole head")
    folder = save(model, tmp_path / "start")
    adapted = peft_model(model, theirs)
    adapter = save_adapter(adapted, tmp_path / "adapter")
    expected = logits(adapted)
    merge("--model", folder, "--adapter", adapter, "--output", tmp_path / "merged")
    torch.testing.assert_close(logits(load_without_warnings(tmp_path / "merged")), expected, rtol=0, atol=1e-5)


def test_several_adapters_are_folded_in_and_the_last_is_trained_on(tmp_path):
    model = make_model("Llama")
    folder = save(model, tmp_path / "start")
    first = save_adapter(peft_model(make_model("Llama"), KINDS["lora"][0]), tmp_path / "first")
    second = save_adapter(peft_model(make_model("Llama"), KINDS["query and value"][0]), tmp_path / "second")
    trainer = {**TRAINER, "batch_size": TRAINER["global_batch_size"], "max_steps": 2}
    config, _ = config_for(tmp_path, folder, Case("lora"), trainer)
    settings = json.loads(config.read_text())
    settings["lora"] = {"adapters": [str(first), str(second)]}
    config.write_text(json.dumps(settings))
    together = train(tmp_path, "together", config, "--ranks", "1")

    merge("--model", folder, "--adapter", first, "--output", tmp_path / "merged")
    apart, _ = run_from(tmp_path, tmp_path / "merged", second, trainer, "--ranks", "1", name="apart")
    
    assert together.losses() == pytest.approx(apart.losses(), rel=1e-6)


def test_adapters_saved_by_three_ranks_are_those_of_one(tmp_path):
    folder = save(make_model("Llama"), tmp_path / "start")
    files = []
    for ranks in (1, 3):
        config, _ = config_for(tmp_path, folder, Case("lora"), {**TRAINER, "batch_size": TRAINER["global_batch_size"] // ranks, "max_steps": 4})
        settings = json.loads(config.read_text())
        settings["lora"] = {"enabled": True, "rank": 4}
        config.write_text(json.dumps(settings))
        run = train(tmp_path, f"run{ranks}", config, "--ranks", str(ranks))
        files.append(PeftModel.from_pretrained(load_without_warnings(folder), run.folder / "adapter"))
    for (name, one), (_, three) in zip(files[0].named_parameters(), files[1].named_parameters()):
        torch.testing.assert_close(one, three, rtol=2e-4, atol=2e-6, msg=name)


def break_config(change):
    def apply(folder):
        path = folder / "adapter_config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))
    return apply


MISTAKES = {
    "no adapter there": (lambda folder: [file.unlink() for file in folder.iterdir()], "no adapter_config.json"),
    "weights missing": (lambda folder: (folder / "adapter_model.safetensors").unlink(), "adapter_model.safetensors"),
    "not JSON": (lambda folder: (folder / "adapter_config.json").write_text("{"), "not a JSON object"),
    "another method": (break_config(lambda c: c.update(peft_type="IA3")), "IA3"),
    "ranks that the file does not have": (break_config(lambda c: c.update(rank_pattern={"q_proj": 8})), "is [4, 32], this model needs [8, 32]"),
    "a rank that the file does not have": (break_config(lambda c: c.update(r=5)), "does not fit"),
    "a target that is nowhere": (break_config(lambda c: c.update(target_modules=["w2"])), "its target_modules (w2) name no matrix of this model"),
    "a pattern that is none": (break_config(lambda c: c.update(target_modules="(.*_proj")), "is a regular expression that cannot be used"),
    "a pattern that is not understood": (break_config(lambda c: c.update(target_modules="(?i).*_proj")), "not understood here"),
    "a setting that nobody knows": (break_config(lambda c: c.update(use_newest_trick=True)), "use_newest_trick is true, which is not built"),
    "truncated weights": (lambda folder: (folder / "adapter_model.safetensors").write_bytes((folder / "adapter_model.safetensors").read_bytes()[:3000]), "adapter_model"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(tmp_path, mistake):
    change, words = MISTAKES[mistake]
    folder = save(make_model("Llama"), tmp_path / "start")
    adapter = save_adapter(peft_model(make_model("Llama"), KINDS["lora"][0]), tmp_path / "adapter")
    change(adapter)
    config, _ = config_for(tmp_path, folder, Case("lora"), {**TRAINER, "batch_size": TRAINER["global_batch_size"], "max_steps": 1})
    run = train(tmp_path, "run", config, "--adapter", str(adapter), "--ranks", "1", check=False)
    assert run.code not in (0, 70)
    assert words in run.text
    assert not run.folder.exists()
