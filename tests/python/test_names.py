"""Every name that people give to Hugging Face, TRL, PEFT and Unsloth is mapped, passed over or refused with a word of its own: none is unknown."""
import dataclasses
import json

import pytest
from names import LORA_CONFIG, OLDER_TRAINING_ARGUMENTS, SFT_CONFIG, UNSLOTH_FROM_PRETRAINED, UNSLOTH_GET_PEFT_MODEL

import lockstep
from lockstep.program import call
from lockstep.trainer import LORA_NAMES, _lora_of


def fates(tmp_path, program, values):
    """What becomes of each name."""
    (tmp_path / "arguments.json").write_text(json.dumps(values))
    done = call("config", "import", tmp_path / "arguments.json", "--from", program, "--json", check=False)
    assert done.stdout.startswith("{"), done.stderr
    keys = json.loads(done.stdout)["keys"]
    for key in keys:
        assert key["says"] and key["fate"] in ("mapped", "ignored", "refused", "noted", "filled_in"), key
    return {key["theirs"]: key for key in keys}


def training_arguments():
    from transformers import TrainingArguments
    return [field.name for field in dataclasses.fields(TrainingArguments)]


@pytest.mark.parametrize("program,names", [
    ("huggingface", training_arguments), ("huggingface", OLDER_TRAINING_ARGUMENTS), ("trl", training_arguments), ("trl", SFT_CONFIG),
    ("trl", [LORA_NAMES.get(name, name) for name in LORA_CONFIG]), ("unsloth", UNSLOTH_FROM_PRETRAINED), ("unsloth", UNSLOTH_GET_PEFT_MODEL),
], ids=["TrainingArguments", "older TrainingArguments", "TrainingArguments in TRL", "SFTConfig", "LoraConfig", "from_pretrained", "get_peft_model"])
def test_every_name_is_known(tmp_path, program, names):
    names = names() if callable(names) else names
    assert len(names) > 20
    told = fates(tmp_path, program, {"made_up_name": 1, **{name: None if name != "model_name" else str(tmp_path) for name in names}})
    assert "not a key of" in told["made_up_name"]["says"], "names that nobody knows are told apart"
    assert [name for name in names if "not a key of" in told[name]["says"]] == []


def test_a_lora_config_as_peft_writes_it(tmp_path):
    """adapter_config.json of an adapter holds every field: the defaults among them are passed over, others are refused by name."""
    from peft import LoraConfig
    whole = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], layers_to_transform=[0, 1], task_type="CAUSAL_LM").to_dict()
    told = fates(tmp_path, "trl", {name: sorted(value) if isinstance(value, set) else value for name, value in _lora_of(json.loads(json.dumps(whole, default=list))).items()})
    assert [name for name, key in told.items() if key["fate"] == "refused"] == []
    assert told["layers_to_transform"]["fate"] == "mapped"
    told = fates(tmp_path, "trl", _lora_of({"r": 4, "rank_pattern": {"q_proj": 8}, "init_lora_weights": "pissa", "bias": "all"}))
    assert {name for name, key in told.items() if key["fate"] == "refused"} == {"rank_pattern", "init_lora_weights", "bias"}


def test_what_is_refused_says_its_name_before_anything_starts(tmp_path):
    config = lockstep.SFTConfig(output_dir=tmp_path / "out", neftune_noise_alpha=5, max_steps=3)
    with pytest.raises(lockstep.ArgumentsRefused) as caught:
        lockstep.SFTTrainer("models/nano.yaml", args=config, peft_config={"r": 4, "exclude_modules": ["q_proj"]}, progress=False).train()
    assert set(caught.value.refused) == {"neftune_noise_alpha", "exclude_modules"} and "lora.target_modules" in str(caught.value)
    assert caught.value.code == 2 and not (tmp_path / "out").exists()
