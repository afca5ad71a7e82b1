"""Trainer and SFTTrainer in the shape of Hugging Face's and TRL's: what they are given becomes a run file, and the program trains it."""
from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .arguments import SFTConfig, TrainingArguments, run_file
from .callbacks import MOMENTS, FunctionCallback, PlotCallback, ProgressCallback, TrainerCallback, TrainerControl
from .data import as_file
from .errors import LockstepError
from .model import Model, Tokenizer, template_in
from .program import words_of
from .run import Run
from .started import start


class TrainOutput(NamedTuple):
    global_step: int
    training_loss: float
    metrics: dict[str, float]



# What would change the numbers and cannot be carried over to the ranks, which run no Python.
REFUSED = {
    "compute_loss_func": "the loss is cross-entropy over all tokens of the global batch", "compute_metrics": "evaluation gives loss, perplexity and accuracy",
    "optimizers": "name one with TrainingArguments(optim=...)", "optimizer_cls_and_kwargs": "name one with TrainingArguments(optim=...)",
    "model_init": "give the model's folder", "preprocess_logits_for_metrics": "evaluation gives loss, perplexity and accuracy",
}
# Collators that only pad: padding changes no number here.
PADDING = {"DataCollatorForSeq2Seq", "DataCollatorWithPadding", "DefaultDataCollator", "DataCollatorForLanguageModeling"}
# PEFT's LoraConfig, as TRL's table spells it.
LORA_NAMES = {"r": "lora_r", "target_modules": "lora_target_modules", "modules_to_save": "lora_modules_to_save", "task_type": "lora_task_type",
              "target_parameters": "lora_target_parameters"}


class TrainerState:
    """Where a training stands: global_step, max_steps, epoch, best_metric, log_history (every line of metrics so far)."""

    def __init__(self) -> None:
        self.global_step, self.max_steps, self.epoch = 0, 0, 0.0
        self.log_history: list[dict[str, Any]] = []
        self.best_metric: float | None = None  # the least eval_loss so far
        self.best_global_step: int | None = None

    @property
    def is_world_process_zero(self) -> bool:
        from .distributed import is_main_process
        return is_main_process()

    @property
    def is_local_process_zero(self) -> bool:
        from .distributed import get_local_rank
        return get_local_rank() == 0

    def judge(self, evaluation: dict[str, Any]) -> None:
        loss = evaluation["eval_loss"]
        if loss is not None and (self.best_metric is None or loss < self.best_metric):
            self.best_metric, self.best_global_step = loss, evaluation.get("step", self.global_step)


class Trainer:
    """Trains `model` on `train_dataset` with `args`, on every GPU there is.

    model: a Hugging Face model folder, what FastLanguageModel gave, or a run file ("models/nano.yaml") to begin from random weights.
    train_dataset, eval_dataset: a file, a list or generator of records, a datasets.Dataset. args: TrainingArguments, SFTConfig, or a dict.
    callbacks: TrainerCallbacks, or functions that are called with each line. launch: flags of `lockstep train`, {"ranks": 2, "device": "cpu"}.
    Other keywords are arguments too (max_seq_length, packing, dataset_text_field), as older versions of TRL have them.
    """

    arguments_class: type[TrainingArguments] = TrainingArguments

    def __init__(self, model: Model | str | os.PathLike[str] | None = None, args: Any = None, train_dataset: Any = None, eval_dataset: Any = None,
                 tokenizer: Any = None, processing_class: Any = None, callbacks: Sequence[Any] = (), *, data_collator: Any = None,
                 formatting_func: Callable[[Any], Any] | None = None, peft_config: Any = None, launch: dict[str, Any] | None = None,
                 progress: bool = True, **more: Any) -> None:
        _expect_a_folder(model)
        self.model, self.tokenizer = model, processing_class or tokenizer
        self.args = self.arguments_class.of(args)
        self._told_args = self.args if args is None or isinstance(args, (TrainingArguments, dict)) else args  # callbacks look into what they know
        self.train_dataset, self.eval_dataset, self.formatting_func = train_dataset, eval_dataset, formatting_func
        self.launch = dict(launch or {})
        self.more = {**_lora_of(peft_config), **_without_refused(more, data_collator)}
        self.state = TrainerState()
        self.run: Run | None = None
        self._files: dict[int, tuple[Any, str]] = {}
        self.callbacks: list[Any] = [_as_callback(callback) for callback in callbacks]
        if progress:
            self.callbacks += [ProgressCallback(), PlotCallback()]

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(_as_callback(callback))

    # ---- what is asked of the program

    def _arguments(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Their names, for the import tables; and settings of ours, which have a dot in their names."""
        values = {**self.args.to_dict(), **self.more}
        if isinstance(self.model, Model):
            values = {**self.model.arguments(), **values}
        elif self.model is not None and not _is_run_file(self.model):
            values["model_name_or_path"] = os.fspath(self.model)
        if (template := self._own_template()) is not None:
            from .data import keep
            values.setdefault("data.chat_template", str(keep(template, "templates", ".jinja")))
        for name, dataset in (("train_file", self.train_dataset), ("validation_file", self.eval_dataset)):
            if dataset is not None:
                values[name] = self._file_of(dataset)
        return {name: value for name, value in values.items() if "." not in name}, {name: value for name, value in values.items() if "." in name}

    def _own_template(self) -> str | None:
        """A chat template that the given tokenizer has and the model's folder has not."""
        folder = self.model.folder if isinstance(self.model, Model) else self.model
        template = self.tokenizer.given_template if isinstance(self.tokenizer, Tokenizer) else getattr(self.tokenizer, "chat_template", None)
        return template if isinstance(template, str) and folder is not None and template != template_in(folder) else None

    def _file_of(self, dataset: Any) -> str:
        """Read once: a generator has nothing to give a second time."""
        if id(dataset) not in self._files:
            self._files[id(dataset)] = (dataset, as_file(dataset, self.formatting_func))
        return self._files[id(dataset)][1]

    def _program(self) -> str:
        if isinstance(self.model, Model):
            return "unsloth"
        return "trl" if "use_peft" in self.more else self.args.program

    def command(self) -> list[str]:
        """What is behind `lockstep train` for this training. Writes the run file; starts nothing."""
        values, ours = self._arguments()
        yaml, mapped = run_file(values, self._program())
        words = [*words_of(ours), *words_of(self.launch)]
        if self.model is not None and not isinstance(self.model, Model) and _is_run_file(self.model):
            return ["-f", os.fspath(self.model), *(f"{key}={value}" for key, value in mapped.items()), *words]
        from .data import keep
        return ["-f", str(keep(yaml, "settings", ".yaml")), *words]

    # ---- training

    def start(self, resume_from_checkpoint: bool | str | os.PathLike[str] | None = None) -> Run:
        """Starts and comes back at once with the Run."""
        words = self.command()
        if resume_from_checkpoint:
            words += ["--resume", "auto" if resume_from_checkpoint is True else os.fspath(resume_from_checkpoint)]
        self.run = start(words)
        return self.run

    def train(self, resume_from_checkpoint: bool | str | os.PathLike[str] | None = None) -> TrainOutput:
        """Trains to the end. Ctrl-C saves, ends the run and is raised again."""
        run = self.start(resume_from_checkpoint)
        try:
            self._follow(run)
        except BaseException:
            _stop(run)
            raise
        end = run.wait()
        if isinstance(self.model, Model):
            self.model.run = run
        losses = [line["loss"] for line in self.state.log_history if line.get("loss") is not None]
        mean = sum(losses) / len(losses) if losses else float("nan")
        seconds = end.get("seconds", 0.0)
        return TrainOutput(self.state.global_step, mean, {"train_runtime": seconds, "train_loss": mean, "epoch": self.state.epoch,
                                                          "train_steps_per_second": self.state.global_step / seconds if seconds else 0.0})

    def _follow(self, run: Run) -> None:
        control = TrainerControl()
        for event in run.events():
            name = event.get("event")
            if name == "plan":
                self.state.max_steps = event.get("steps") or event.get("max_steps") or 0
                self._tell("on_train_begin", control)
            elif event.get("total_steps"):
                self.state.max_steps = event["total_steps"]
            elif name == "checkpoint":
                self._tell("on_save", control)
            elif "loss" in event:
                self.state.global_step, self.state.epoch = event["step"], event.get("epoch", 0.0)
                self.state.log_history.append(event)
                self._tell("on_step_end", control)
                self._tell("on_log", control, logs=event)
            elif "eval_loss" in event:
                self.state.log_history.append(event)
                self._tell("on_evaluate", control, metrics=event)
                self.state.judge(event)  # after callbacks, which compare with the best before
            self._obey(run, control)
        self._tell("on_train_end", control)

    def _tell(self, moment: str, control: TrainerControl, **what: Any) -> None:
        for callback in self.callbacks:
            if (hears := getattr(callback, moment, None)) is not None:
                hears(self._told_args, self.state, control, model=self.model, processing_class=self.tokenizer, tokenizer=self.tokenizer, **what)

    @staticmethod
    def _obey(run: Run, control: TrainerControl) -> None:
        wishes = [wish for wish, wanted in (("save", control.should_save), ("evaluate", control.should_evaluate), ("stop", control.should_training_stop))
                  if wanted]
        control.should_save = control.should_evaluate = control.should_training_stop = False
        if wishes and run.status == "running":
            try:
                run.ask(*wishes)
            except LockstepError:
                if run.status == "running":  # otherwise it ended on its own before it could be asked
                    raise

    # ---- afterwards

    def evaluate(self) -> dict[str, Any]:
        """The newest evaluation; of a run that trains, one made now."""
        if self.run is not None and self.run.status == "running":
            self.run.evaluate()
        found = [line for line in self.state.log_history if "eval_loss" in line]
        if not found:
            raise LockstepError("there is no evaluation: give eval_dataset, and train first.", 2)
        return found[-1]

    def save_model(self, output_dir: str | os.PathLike[str] | None = None) -> None:
        """The trained model, or the adapter, as a folder that transformers and vLLM load."""
        if self.run is None:
            raise LockstepError("there is nothing to save: train first.", 2)
        from .model import save_run
        save_run(self.run.folder, pathlib.Path(output_dir or self.run.folder / "saved"))


def train_on_responses_only(trainer: Trainer, instruction_part: str | None = None, response_part: str | None = None, **more: Any) -> Trainer:
    """Unsloth's: only what the assistant says is trained. Here conversations say which turns those are, so no marks are looked for."""
    trainer.more["data.train_on"] = "responses"
    return trainer


class SFTTrainer(Trainer):
    """TRL's SFTTrainer: as Trainer, with SFTConfig's names and defaults."""

    arguments_class = SFTConfig


def _stop(run: Run) -> None:
    """Saves and ends a run that something has interrupted; a second Ctrl-C ends it at once. What ended it first is what is raised."""
    try:
        run.stop()
    except LockstepError:
        pass
    except KeyboardInterrupt:
        run.kill()


def _as_callback(callback: Any) -> Any:
    """An object that has some of the moments (transformers' own too), its class, or a function that is called with each line."""
    callback = callback() if isinstance(callback, type) else callback
    if any(hasattr(callback, moment) for moment in MOMENTS):
        return callback
    if not callable(callback):
        raise LockstepError(f"callbacks has a {type(callback).__name__}: give a function, or an object with {', '.join(MOMENTS)}.", 2)
    return FunctionCallback(callback)


def _expect_a_folder(model: Any) -> None:
    """A model in memory is not what would be trained: ranks read their weights from a folder."""
    if model is None or isinstance(model, (Model, str, os.PathLike)):
        return
    name = getattr(getattr(model, "config", None), "_name_or_path", "")
    where = f"Give the folder that it came from, model={name!r}" if name and os.path.isdir(name) else "Keep it with save_pretrained(DIR), and give that folder"
    raise LockstepError(f"model is a {type(model).__name__}: every rank reads its weights from a folder. {where}.", 2)


def _is_run_file(model: object) -> bool:
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith((".yaml", ".yml", ".json"))


def _without_refused(more: dict[str, Any], data_collator: Any) -> dict[str, Any]:
    for name, why in REFUSED.items():
        if more.pop(name, None) not in (None, (None, None)):
            raise LockstepError(f"{name} cannot be carried out: ranks run no Python. Instead: {why}.", 2)
    if data_collator is not None and (type(data_collator).__name__ not in PADDING or getattr(data_collator, "mlm", False)):
        raise LockstepError(f"data_collator {type(data_collator).__name__} cannot be carried out: ranks run no Python. What is trained is said with "
                            "assistant_only_loss or completion_only_loss, or {'data.train_on': 'responses'}.", 2)
    return more


def _lora_of(peft_config: Any) -> dict[str, Any]:
    """PEFT's LoraConfig (or a dict of its names) under TRL's names; of an object, what its class does not say by itself, and r and alpha."""
    if peft_config is None:
        return {}
    if isinstance(peft_config, dict):
        values = dict(peft_config)
    else:
        default = type(peft_config)()
        values = {name: value for name, value in vars(peft_config).items()
                  if name in ("r", "lora_alpha", "lora_dropout") or value != getattr(default, name, None)}
    return {"use_peft": True, **{LORA_NAMES.get(name, name): value for name, value in values.items()}}
