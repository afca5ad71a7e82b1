"""Tiny models of the supported families, made by transformers, and what it says about a folder of ours."""
import contextlib
import copy
import logging
import pathlib
import subprocess
import warnings

import torch
import transformers

from support.lockstep import BUILD

TOOL = BUILD / "bin" / "model_tool"
VOCABULARY = 67
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128, "tie_word_embeddings": False}


def make_model(family: str, **changes):
    """Random everywhere, norms and biases too: what starts as one or zero would hide a mistake."""
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 2 else 0.3) + (1.0 if name.endswith("norm.weight") else 0.0))
    return model


def save(model, folder: pathlib.Path, dtype: str = "float32", **options) -> pathlib.Path:
    """A folder as transformers writes it; the model itself stays f32, rounded to what the folder holds."""
    with torch.no_grad():  # not model.to(dtype): that rounds the rotary frequencies too, which no folder holds
        for parameter in model.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype)))
    with quiet():
        copy.deepcopy(model).to(getattr(torch, dtype)).save_pretrained(folder, **options)
    return folder


@contextlib.contextmanager
def quiet():
    transformers.logging.disable_progress_bar()
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


def load_without_warnings(folder: pathlib.Path, **options):
    """from_pretrained, with every word of warning and every missing, unexpected or misshapen tensor an error."""
    said = []

    class Listener(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())

    listener, logger = Listener(logging.WARNING), logging.getLogger("transformers")
    transformers.logging.disable_progress_bar()
    logger.addHandler(listener)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
    finally:
        logger.removeHandler(listener)
    assert said == []
    assert not any(info.values()), info
    return model.eval()


def run_tool(folder: pathlib.Path, tokens: torch.Tensor, targets: torch.Tensor, scratch: pathlib.Path) -> dict:
    """Logits, summed loss and every gradient ("grad.NAME") of our decoder with the weights of a folder."""
    from safetensors.torch import load_file, save_file

    save_file({"tokens": tokens.contiguous(), "targets": targets.contiguous()}, scratch / "tokens.safetensors")
    done = subprocess.run([TOOL, folder, scratch / "tokens.safetensors", scratch / "out.safetensors"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return load_file(scratch / "out.safetensors")
