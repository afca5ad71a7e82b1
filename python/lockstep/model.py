"""FastLanguageModel in Unsloth's shape: a model is its folder, what is to be trained beside it, and the run that trained it."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import TYPE_CHECKING, Any

from .arguments import plain
from .errors import LockstepError
from .program import call

if TYPE_CHECKING:
    from .run import Run


def template_in(folder: str | os.PathLike[str]) -> str | None:
    """The chat template of a model's folder."""
    path = pathlib.Path(folder)
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    try:
        template = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return None
    return template if isinstance(template, str) else None


class Tokenizer:
    """The tokenizer of a model's folder. Special tokens are read from its files; for everything else transformers is asked, where it is."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = pathlib.Path(folder)
        self._whole: Any = None
        self._files: dict[str, Any] = {}
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            if (self._folder / name).exists():
                self._files.update(json.loads((self._folder / name).read_text(encoding="utf-8")))

    @property
    def given_template(self) -> Any:
        """What someone has set as its chat_template."""
        return self.__dict__.get("chat_template") or (self._whole.chat_template if self._whole is not None else None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.endswith("_token") and name in self._files:
            value = self._files[name]
            return value["content"] if isinstance(value, dict) else value
        return getattr(self._real(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def _real(self) -> Any:
        if self._whole is None:
            try:
                from transformers import AutoTokenizer
            except ImportError:
                raise LockstepError("tokens are the program's matter: give texts and conversations as they are. (With `pip install transformers` this "
                                    "object is its tokenizer.)", 2) from None
            self._whole = AutoTokenizer.from_pretrained(str(self._folder))
        return self._whole


class Model:
    """A model's folder with what was said about it. `run` is the run that trained it, once one has."""

    def __init__(self, folder: str | os.PathLike[str], arguments: dict[str, Any]) -> None:
        self.folder, self._arguments = pathlib.Path(folder), arguments
        self.run: Run | None = None

    def arguments(self) -> dict[str, Any]:
        return {"model_name": str(self.folder), **self._arguments}

    def _for_text(self) -> dict[str, Any]:
        if self.run is not None:
            return {"run": self.run.folder}
        bits = {name: True for name in ("load_in_4bit", "load_in_8bit") if self._arguments.get(name)}
        return {"model": self.folder, **bits}

    def generate(self, prompts: Any = None, *, input_ids: Any = None, **settings: Any) -> Any:
        """What it writes after a text, a conversation, or a list of these; see lockstep.generate."""
        from .text import generate
        if input_ids is not None or prompts is None or hasattr(prompts, "shape"):
            raise LockstepError("generate takes texts or conversations, not tokens: model.generate('Once upon a time', max_new_tokens=64), "
                                "model.generate([{'role': 'user', 'content': '...'}]).", 2)
        for name in ("use_cache", "streamer", "pad_token_id", "eos_token_id", "attention_mask"):
            settings.pop(name, None)
        return generate(prompts, **{**self._for_text(), **settings})

    def save_pretrained(self, output_dir: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """The adapter as PEFT's folder, or all weights where all were trained."""
        save_run(self._trained(), pathlib.Path(output_dir))

    def save_pretrained_merged(self, output_dir: str | os.PathLike[str], tokenizer: Any = None, save_method: str = "merged_16bit", **kwargs: Any) -> None:
        """The adapter folded into its model: a folder that transformers and vLLM load."""
        if save_method == "lora":
            return self.save_pretrained(output_dir)
        run = self._trained()
        if not (run / "adapter").is_dir():
            return save_run(run, pathlib.Path(output_dir))
        bits = ["--load-in-4bit"] if "4bit" in save_method else []
        call("merge", "--model", self.folder, "--adapter", run / "adapter", "--output", output_dir, *bits)

    def _trained(self) -> pathlib.Path:
        if self.run is None:
            raise LockstepError("this model has not been trained: there is nothing to save.", 2)
        return self.run.folder


def save_run(run: pathlib.Path, output: pathlib.Path) -> None:
    """A run's adapter, or its model, as a folder."""
    if (run / "adapter").is_dir():
        shutil.copytree(run / "adapter", output, dirs_exist_ok=True)
    else:
        call("export", "--run", run, "--output", output)


def is_bfloat16_supported() -> bool:
    """Unsloth's question. Every device that Lockstep trains on computes in bf16: GPUs from Ampere on, and CPUs."""
    return True


class FastLanguageModel:
    """from_pretrained, get_peft_model and for_inference as in Unsloth. What their arguments mean here is the table of
    `lockstep config import --from unsloth`; it is asked when training starts."""

    @staticmethod
    def from_pretrained(model_name: str | os.PathLike[str], max_seq_length: int = 2048, dtype: Any = None, load_in_4bit: bool = True,
                        load_in_8bit: bool = False, **more: Any) -> tuple[Model, Tokenizer]:
        """A model from its folder, and its tokenizer. Nothing is loaded until it trains or writes."""
        folder = os.fspath(model_name)
        if not os.path.isdir(folder):
            raise LockstepError(f"there is no folder {folder}, and nothing is downloaded: fetch the model (`hf download {folder} --local-dir DIR`) and give "
                                "its folder.", 2)
        if (pathlib.Path(folder) / "adapter_config.json").exists():
            raise LockstepError(f"{folder} is an adapter. Fold it into its model first: lockstep merge --adapter {folder} --output DIR", 2)
        arguments = {"max_seq_length": max_seq_length, "dtype": plain(dtype), "load_in_4bit": bool(load_in_4bit and not load_in_8bit),
                     "load_in_8bit": bool(load_in_8bit), **more}
        return Model(folder, {name: value for name, value in arguments.items() if value is not None}), Tokenizer(folder)

    @staticmethod
    def get_peft_model(model: Model, r: int = 16, **more: Any) -> Model:
        """An adapter beside the model, to be trained in its stead."""
        values = {"use_peft": True, "r": r, **{name: plain(value) for name, value in more.items() if value is not None}}
        return Model(model.folder, {**model._arguments, **values})

    @staticmethod
    def for_inference(model: Model) -> Model:
        return model

    @staticmethod
    def for_training(model: Model) -> Model:
        return model
