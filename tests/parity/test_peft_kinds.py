"""Adapters of every kind that PEFT writes: folded in as PEFT computes them, or refused by name before anything is made."""
import json
import subprocess
import warnings

import peft
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model

from parity.test_lora import logits, merge, peft_model, save_adapter
from support.lockstep import LOCKSTEP
from support.model_folders import load_without_warnings, make_model, save

EMBEDDINGS = {
    "head": {"target_modules": ["lm_head", "q_proj"]},
    "embedding": {"target_modules": ["embed_tokens", "v_proj"]},
    "both, ranks by name": {"target_modules": ["embed_tokens", "lm_head"], "rank_pattern": {"lm_head": 3}, "alpha_pattern": {"embed_tokens": 2}},
    "both by regex, dora": {"target_modules": r"(lm_head|model\.embed_tokens|.*o_proj)", "use_dora": True},
}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_adapters_on_embedding_and_head_merge(tmp_path, kind, tied):
    model = make_model("Llama", tie_word_embeddings=tied)
    folder = save(model, tmp_path / "start")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft_model(model, {"r": 4, "lora_alpha": 6, **EMBEDDINGS[kind]})
        adapter = save_adapter(adapted, tmp_path / "adapter")
    expected = logits(adapted)
    merge("--model", folder, "--adapter", adapter, "--output", tmp_path / "merged")
    torch.testing.assert_close(logits(load_without_warnings(tmp_path / "merged")), expected, rtol=0, atol=1e-4)


def front(*args):
    return subprocess.run([LOCKSTEP, *map(str, args)], capture_output=True, text=True, timeout=60)


def refused(tmp_path, folder, adapter, *words, verbs=("merge", "train", "generate")):
    """By every verb, with all the words, before anything is made."""
    commands = {"merge": ("--output", tmp_path / "made"), "train": ("--output", tmp_path / "made", "--name", "run", "--device", "cpu"),
                "generate": ("--prompt", "a", "--device", "cpu")}
    for verb in verbs:
        done = front(verb, "--model", folder, "--adapter", adapter, *commands[verb])
        assert done.returncode == 2, done.stderr
        for word in words:
            assert word in done.stderr, (verb, done.stderr)
        assert not (tmp_path / "made").exists()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save(make_model("Llama"), tmp_path_factory.mktemp("base") / "start")


OTHER_METHODS = {
    "IA3": (peft.IA3Config(target_modules=["q_proj", "down_proj"], feedforward_modules=["down_proj"]), "factors on activations"),
    "LOHA": (peft.LoHaConfig(r=4, target_modules=["q_proj"]), "Hadamard"),
    "LOKR": (peft.LoKrConfig(r=4, target_modules=["q_proj"]), "Kronecker"),
    "ADALORA": (peft.AdaLoraConfig(target_r=2, init_r=4, total_step=100, target_modules=["q_proj"]), "AdaLoRA"),
    "VERA": (peft.VeraConfig(r=4, target_modules=["o_proj"]), "VeRA"),
    "OFT": (peft.OFTConfig(oft_block_size=8, target_modules=["q_proj"], use_cayley_neumann=False), "OFT"),
    "HRA": (peft.HRAConfig(r=4, target_modules=["q_proj"]), "Householder"),
    "FOURIERFT": (peft.FourierFTConfig(n_frequency=10, target_modules=["q_proj"]), "FourierFT"),
    "LN_TUNING": (peft.LNTuningConfig(target_modules=["input_layernorm"]), "norms"),
    "RANDLORA": (peft.RandLoraConfig(r=4, target_modules=["o_proj"]), "RandLoRA"),
    "PROMPT_TUNING": (peft.PromptTuningConfig(num_virtual_tokens=4), "cannot be folded"),
    "P_TUNING": (peft.PromptEncoderConfig(num_virtual_tokens=4, encoder_hidden_size=8), "cannot be folded"),
    "PREFIX_TUNING": (peft.PrefixTuningConfig(num_virtual_tokens=4), "cannot be folded"),
}


@pytest.mark.parametrize("kind", OTHER_METHODS)
def test_other_methods_are_refused_by_name(tmp_path, llama, kind):
    config, what = OTHER_METHODS[kind]
    config.task_type = "CAUSAL_LM"
    adapter = save_adapter(get_peft_model(make_model("Llama"), config), tmp_path / "adapter")
    refused(tmp_path, llama, adapter, f"peft_type is {kind}, ", what)


VARIANTS = {
    "bias": ({"target_modules": ["q_proj"], "bias": "all"}, "bias is all"),
    "lora_bias": ({"target_modules": ["q_proj"], "lora_bias": True}, "lora_bias is true, which is not built"),
    "tokens": ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 2]}, "trainable_token_indices is [1,2], which is not built"),
    "pissa": ({"target_modules": ["q_proj"], "init_lora_weights": "pissa"}, "init_lora_weights is pissa"),
    "replicated layers": ({"target_modules": ["q_proj"], "layer_replication": [[0, 2], [1, 2]]}, "layer_replication is [[0,2],[1,2]], which is not built"),
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_variants_of_lora_that_are_not_built_are_refused_by_name(tmp_path, llama, kind):
    settings, words = VARIANTS[kind]
    adapter = save_adapter(get_peft_model(make_model("Llama"), LoraConfig(task_type="CAUSAL_LM", r=4, **settings)), tmp_path / "adapter")
    refused(tmp_path, llama, adapter, words, "adapter_config.json")


def test_what_only_merges_is_not_trained(tmp_path, llama):
    for number, (settings, words) in enumerate([({"target_modules": ["lm_head"]}, "target_modules has lm_head"),
                                                ({"target_modules": ["embed_tokens", "q_proj"]}, "target_modules has model.embed_tokens"),
                                                ({"target_modules": ["q_proj"], "modules_to_save": ["norm"]}, "modules_to_save names norm")]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapter = save_adapter(get_peft_model(make_model("Llama"), LoraConfig(task_type="CAUSAL_LM", r=4, **settings)), tmp_path / f"adapter{number}")
        refused(tmp_path, llama, adapter, words, verbs=("train", "generate"))
        merge("--model", llama, "--adapter", adapter, "--output", tmp_path / f"merged{number}")


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=67, n_positions=32, n_embd=32, n_layer=2, n_head=4))


def opt():
    return transformers.OPTForCausalLM(transformers.OPTConfig(vocab_size=67, hidden_size=32, num_hidden_layers=2, ffn_dim=64, num_attention_heads=4,
                                                              max_position_embeddings=32, word_embed_proj_dim=32))


OTHER_BASES = {
    "openai-community/gpt2": (gpt2, {"target_modules": ["c_attn"], "fan_in_fan_out": True}, "its target_modules (c_attn) name no matrix"),
    "facebook/opt-125m": (opt, {"target_modules": ["q_proj", "v_proj"]}, "8 of its 8 tensors belong to no matrix of this model, such as base_model.model.model.decoder"),
    "meta-llama/wider": (lambda: make_model("Llama", hidden_size=48), {"target_modules": ["q_proj"]}, "is [4, 48], this model needs [4, 32]"),
    "meta-llama/deeper": (lambda: make_model("Llama", num_hidden_layers=3), {"target_modules": ["o_proj"]}, "2 of its 6 tensors belong to no matrix"),
    "meta-llama/shorter": (lambda: make_model("Llama", num_hidden_layers=1), {"target_modules": ["o_proj"]}, "2 tensors are missing"),
    "meta-llama/more-words": (lambda: make_model("Llama", vocab_size=99), {"target_modules": ["o_proj"], "modules_to_save": ["lm_head"]}, "is [99, 32], this model needs [67, 32]"),
    "": (lambda: make_model("Llama").model, {"target_modules": ["q_proj"], "task_type": "FEATURE_EXTRACTION"}, "made for a model without its head"),
}


@pytest.mark.parametrize("base", OTHER_BASES)
def test_an_adapter_of_another_base_says_which(tmp_path, llama, base):
    make, settings, words = OTHER_BASES[base]
    adapted = get_peft_model(make(), LoraConfig(r=4, **{"task_type": "CAUSAL_LM", **settings}))
    adapted.peft_config["default"].base_model_name_or_path = base
    adapter = save_adapter(adapted, tmp_path / "adapter")
    refused(tmp_path, llama, adapter, words, f"does not fit {llama} (2 blocks of 32, 67 tokens)", f"was made for {base or 'a model that it does not name'}")
    assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 4
