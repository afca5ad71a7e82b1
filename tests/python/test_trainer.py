"""Trainer, SFTTrainer and FastLanguageModel: the numbers of the command bit for bit, whatever a dataset is made of; and what is refused."""
import dataclasses
import io
import json
import xml.etree.ElementTree as xml

import pytest
import yaml

import lockstep
from lockstep.arguments import run_file
from lockstep.callbacks import ProgressCallback
from lockstep.plot import loss_svg
from lockstep.trainer import _lora_of
from support.chat_model import write_model
from support.lockstep import train, write_config

LAUNCH = {"device": "cpu", "ranks": 2, "threads": 1}
RECORDS = [{"messages": [{"role": "user", "content": f"say {word}"}, {"role": "assistant", "content": f"{word}!"}]}
           for word in "one two three four five six seven eight nine ten eleven twelve".split()]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def command(chat_model, tmp_path_factory):
    """The adapter that the tests below train, by the command and our own names."""
    folder = tmp_path_factory.mktemp("command")
    (folder / "chat.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    config = {
        "model": {"path": str(chat_model), "dtype": "bf16"},
        "data": {"path": str(folder / "chat.jsonl"), "seq_len": 64, "train_on": "whole_chats", "validation_fraction": 0},
        "trainer": {"batch_size": 2, "gradient_accumulation": 1, "learning_rate": 0.002, "lr_schedule": "linear", "min_lr_ratio": 0, "weight_decay": 0,
                    "beta2": 0.999, "max_steps": 5, "log_interval": 1, "seed": 11, "max_checkpoints": 0, "recompute": "blocks"},
        "lora": {"enabled": True, "rank": 4, "alpha": 8, "dropout": 0, "target_modules": ["q_proj", "v_proj"]},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    return train(folder, "run", folder / "run.yaml", "--ranks", "2", "--threads", "1")


def unsloth_trainer(chat_model, output, dataset, **more):
    model, tokenizer = lockstep.FastLanguageModel.from_pretrained(model_name=str(chat_model), max_seq_length=64, dtype=None, load_in_4bit=False,
                                                                  device_map="auto")
    assert tokenizer.eos_token == "<|im_end|>"
    model = lockstep.FastLanguageModel.get_peft_model(model, r=4, target_modules=["q_proj", "v_proj"], lora_alpha=8, lora_dropout=0, bias="none",
                                                      use_gradient_checkpointing="unsloth", random_state=3407, use_rslora=False, loftq_config=None)
    args = lockstep.SFTConfig(output_dir=output, per_device_train_batch_size=2, learning_rate=2e-3, max_steps=5, logging_steps=1, seed=11,
                              optim="adamw_torch", report_to="none")
    return lockstep.SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=dataset, args=args, launch=LAUNCH, **more)


class Table:
    """As datasets.Dataset is: rows by number, and one after the other."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)


def test_unsloths_shape_gives_the_commands_losses(chat_model, command, tmp_path):
    heard, later = [], []
    trainer = unsloth_trainer(chat_model, tmp_path / "out", Table(RECORDS), callbacks=[heard.append], progress=False)
    trainer.add_callback(later.append)
    with pytest.raises(lockstep.LockstepError, match="train first"):
        trainer.save_model(tmp_path / "nothing")
    assert lockstep.FastLanguageModel.for_training(trainer.model) is trainer.model
    result = trainer.train()
    assert later == heard and trainer.state.is_world_process_zero
    assert [line["loss"] for line in trainer.state.log_history if "loss" in line] == command.losses()
    assert heard == [line for line in trainer.state.log_history if "loss" in line]
    assert result.global_step == 5 and result.training_loss == pytest.approx(sum(command.losses()) / 5)
    assert trainer.run.folder == tmp_path / "out" and trainer.state.max_steps == 5
    # What was trained is there to be kept, merged and written with.
    trainer.model.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() == (command.folder / "adapter" / "adapter_model.safetensors").read_bytes()
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved" / "adapter_model.safetensors").read_bytes() == (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    trainer.model.save_pretrained_merged(tmp_path / "merged", trainer.tokenizer)
    question = [{"role": "user", "content": "say one"}]
    ask = {"max_new_tokens": 4, "do_sample": False, "device": "cpu"}
    merged, _ = lockstep.FastLanguageModel.from_pretrained(tmp_path / "merged", load_in_4bit=False)
    assert trainer.model.generate(question, **ask) == lockstep.generate(question, model=chat_model, adapter=tmp_path / "adapter", **ask)
    assert merged.generate([question], **ask)[0].finish in ("end", "length")
    with pytest.raises(lockstep.LockstepError, match="not tokens"):
        trainer.model.generate(input_ids=[[1, 2]])


def test_a_chat_remembers_and_streams(chat_model, tmp_path):
    ask = {"model": chat_model, "max_tokens": 5, "temperature": 0, "device": "cpu"}
    with lockstep.Chat(**ask) as chat:
        pieces = list(chat.stream("say one"))
        first = chat.messages[-1]["content"]
        assert "".join(pieces) == first == lockstep.generate([{"role": "user", "content": "say one"}], **ask).text
        left = chat.stream("say two")  # and given up before its end
        next(left, None)
        left.close()
        third = chat.say("say three")
        assert [message["role"] for message in chat.messages] == ["user", "assistant"] * 3 and third.finish in ("end", "length")
        assert third.text == lockstep.generate(chat.messages[:-1], **ask).text
        chat.reset()
        assert chat.say("say one").text == first
    with pytest.raises(lockstep.LockstepError, match="no such folder"):
        lockstep.Chat(model=tmp_path / "none")


@pytest.mark.parametrize("kind", ["list", "generator", "file"])
def test_datasets_of_any_kind_are_one_file(chat_model, command, tmp_path, kind):
    dataset = {"list": RECORDS, "generator": (record for record in RECORDS), "file": command.folder.parent / "chat.jsonl"}[kind]
    trainer = unsloth_trainer(chat_model, tmp_path / "out", dataset)
    settings = yaml.safe_load(open(trainer.command()[1]))
    expected = (command.folder.parent / "chat.jsonl").read_text()
    assert open(settings["data"]["path"]).read() == expected
    assert settings["lora"] == {"enabled": True, "rank": 4, "alpha": 8, "dropout": 0, "rslora": False, "target_modules": ["q_proj", "v_proj"]}


def test_texts_and_formatting_functions(chat_model, tmp_path):
    from lockstep.data import as_file
    assert open(as_file(["one", "two"])).read() == '{"text": "one"}\n{"text": "two"}\n'
    assert open(as_file([{"a": 1}, {"a": 2}], lambda row: [f"a is {row['a']}"])).read() == '{"text": "a is 1"}\n{"text": "a is 2"}\n'
    import numpy
    assert as_file([{"text": "ü", "n": numpy.int64(3)}]) == as_file([{"n": 3, "text": "ü"}][:0] + [{"text": "ü", "n": 3}])
    import pyarrow
    assert open(as_file(pyarrow.table({"text": ["one", "two"]}))).read() == '{"text": "one"}\n{"text": "two"}\n', "a table's rows, not its columns"
    for bad, words in (([], "empty"), ([{"input_ids": [1, 2], "labels": [1, 2]}], "holds tokens .input_ids."), ([{"text": "ok"}, {"text": "\ud800"}], "record 1 .* surrogates not allowed"), ([{"x": float("nan")}], "not JSON compliant"), ([3], "record 0 of the dataset is a int"), ([{"x": object()}], "cannot be written as JSON"),
                       ({"train": RECORDS}, "dict of splits"), ("no/such.jsonl", "no file here")):
        with pytest.raises(lockstep.LockstepError, match=words):
            as_file(bad)


class Frame:
    """As pandas.DataFrame is: whoever goes over it gets the names of its columns."""

    def __init__(self, rows):
        self.rows, self.columns = rows, list(rows[0])

    def __iter__(self):
        return iter(self.columns)

    def to_dict(self, orient):
        assert orient == "records"
        return self.rows


def test_tables_and_lists_of_files_are_read_by_their_rows(tmp_path):
    from lockstep.data import as_file
    assert open(as_file(Frame([{"text": "one"}, {"text": "two"}]))).read() == '{"text": "one"}\n{"text": "two"}\n'
    for name in ("a", "b"):
        (tmp_path / name).write_text(f'{{"text": "{name}"}}\n')
    files = [str(tmp_path / "a"), tmp_path / "b"]
    assert as_file(files) == f"{tmp_path}/a,{tmp_path}/b"
    assert open(as_file(files, lambda row: row["text"] * 2)).read() == '{"text": "aa"}\n{"text": "bb"}\n'


def test_a_formatting_function_of_batches(tmp_path):
    """As TRL had them, and Unsloth's notebooks do: columns of many rows in, a list with a text for each out."""
    from lockstep.data import as_file

    def of_columns(examples):
        return [f"{question} {answer}" for question, answer in zip(examples["q"], examples["a"])]

    rows = [{"q": f"why {number}?", "a": f"{number}"} for number in range(2500)]
    assert [json.loads(line)["text"] for line in open(as_file(rows, of_columns))] == [f"why {number}? {number}" for number in range(2500)]


def test_what_is_set_in_arguments_afterwards_counts(tmp_path):
    args = lockstep.SFTConfig(output_dir=tmp_path / "out", max_steps=5)
    args.max_steps, args.learning_rate, args.seed = 7, 1e-3, None
    assert args.to_dict() == {"output_dir": str(tmp_path / "out"), "max_steps": 7, "learning_rate": 1e-3} and args.max_steps == 7
    with pytest.raises(AttributeError):
        args.seed


def test_a_tokenizers_own_chat_template_is_trained_with(chat_model, tmp_path):
    from transformers import AutoTokenizer
    own = "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    theirs = AutoTokenizer.from_pretrained(str(chat_model))
    ours = lockstep.FastLanguageModel.from_pretrained(chat_model, load_in_4bit=False)[1]

    def template(tokenizer):
        words = lockstep.SFTTrainer(str(chat_model), args={"output_dir": tmp_path / "out"}, train_dataset=RECORDS, tokenizer=tokenizer, launch=LAUNCH).command()
        return next((open(word.partition("=")[2]).read() for word in words if word.startswith("data.chat_template=")), None)

    assert template(theirs) is None and template(ours) is None, "the folder's own"
    theirs.chat_template = ours.chat_template = own
    assert template(theirs) == template(ours) == own


def test_transformers_own_callbacks_are_heard(chat_model, tmp_path):
    from transformers import EarlyStoppingCallback, TrainingArguments
    heard = []

    class Hears:  # of no class of ours
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            heard.append((metrics["eval_loss"], state.best_metric, args.metric_for_best_model, kwargs["processing_class"]))

    # An improvement that is smaller than this is none: it stops at the second evaluation.
    stops = EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=100)
    args = TrainingArguments(output_dir=str(tmp_path / "out"), max_steps=100000, eval_strategy="steps", eval_steps=2, save_strategy="no", report_to="none", use_cpu=True,
                             logging_steps=1, metric_for_best_model="eval_loss", greater_is_better=False)
    trainer = lockstep.SFTTrainer(str(chat_model), args=args, train_dataset=RECORDS, eval_dataset=RECORDS, callbacks=[stops, Hears()], launch={**LAUNCH, "ranks": 1}, progress=False)
    assert trainer.train().global_step < 100000 and trainer.run.status == "stopped"
    assert heard[0][1] is None and heard[1][1] == heard[0][0] and heard[0][2:] == ("eval_loss", None)
    assert trainer.state.best_metric == min(loss for loss, *_ in heard) and trainer.state.best_global_step % 2 == 0
    with pytest.raises(lockstep.LockstepError, match="callbacks has a int"):
        lockstep.Trainer(str(chat_model), callbacks=[3])


def test_a_model_in_memory_is_refused_with_its_folder(chat_model):
    class Loaded:
        config = type("Config", (), {"_name_or_path": str(chat_model)})

    with pytest.raises(lockstep.LockstepError, match="is a Loaded: every rank reads its weights from a folder. Give the folder .*model="):
        lockstep.Trainer(Loaded())


def test_unsloths_helpers(chat_model, tmp_path):
    trainer = lockstep.SFTTrainer(str(chat_model), args={"output_dir": tmp_path / "out"}, train_dataset=RECORDS, launch=LAUNCH)
    assert lockstep.train_on_responses_only(trainer, instruction_part="<|im_start|>user", response_part="<|im_start|>assistant") is trainer
    assert "data.train_on=responses" in trainer.command() and lockstep.is_bfloat16_supported()


def test_a_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    from lockstep.data import as_file
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", "/proc/nowhere"):
        monkeypatch.setenv("LOCKSTEP_CACHE", str(place))
        with pytest.raises(lockstep.LockstepError, match=f"{place}/datasets cannot be written: .* LOCKSTEP_CACHE names another") as caught:
            as_file(["one"])
        assert caught.value.code == 3

    def breaks():
        yield "one"
        raise OSError("the dataset's own")

    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(OSError, match="the dataset's own"):
        as_file(breaks())
    assert not list((tmp_path / "cache/datasets").iterdir()), "nothing half written is left"


def test_trainer_from_random_weights_and_its_callbacks(tmp_path):
    """A run file as the model: what arguments say wins, what they leave out is the file's."""
    config = write_config(tmp_path, trainer={"max_steps": 6}, data={"validation_fraction": 0.1})
    by_command = train(tmp_path, "command", config, "--ranks", "2", "trainer.learning_rate=0.001")

    class Stops(lockstep.TrainerCallback):
        def __init__(self):
            self.moments = []

        def on_train_begin(self, args, state, control, **kwargs):
            self.moments.append(("begin", args.learning_rate, state.max_steps))

        def on_step_end(self, args, state, control, **kwargs):
            self.moments.append(state.global_step)

        def on_evaluate(self, args, state, control, metrics=None, **kwargs):
            self.moments.append("evaluate")

        def on_save(self, args, state, control, **kwargs):
            self.moments.append("save")

        def on_train_end(self, args, state, control, **kwargs):
            self.moments.append("end")

    stops, said = Stops(), io.StringIO()
    trainer = lockstep.Trainer(str(config), args=lockstep.TrainingArguments(output_dir=tmp_path / "out", learning_rate=1e-3), launch=LAUNCH,
                               callbacks=[stops, ProgressCallback(said)], progress=False)
    trainer.train()
    assert [line["loss"] for line in trainer.state.log_history if "loss" in line] == by_command.losses()
    assert stops.moments[0] == ("begin", 1e-3, 6) and stops.moments[1:7] == [1, 2, 3, 4, 5, 6] and set(stops.moments[7:]) == {"evaluate", "save", "end"}
    assert trainer.evaluate()["eval_loss"] == by_command.metrics()[-1].get("eval_loss", trainer.evaluate()["eval_loss"])
    assert "step 6/6  loss" in said.getvalue()
    trainer.save_model(tmp_path / "model")
    assert (tmp_path / "model" / "config.json").exists() and list((tmp_path / "model").glob("*.safetensors"))
    with pytest.raises(lockstep.RunFailed, match="already holds a run with checkpoints"):
        lockstep.Trainer(str(config), args={"output_dir": tmp_path / "out"}, launch=LAUNCH, progress=False).train()


def test_a_callback_stops_the_run_and_it_is_resumed(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 100000, "lr_schedule": "constant"})

    class Enough(lockstep.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            control.should_training_stop = logs["step"] == 2

    def trainer(*callbacks, **launch):
        return lockstep.Trainer(str(config), args={"output_dir": tmp_path / "out"}, launch={**LAUNCH, **launch}, callbacks=callbacks, progress=False)

    first = trainer(Enough)
    stopped_at = first.train().global_step
    assert first.run.status == "stopped" and 2 <= stopped_at < 100000
    second = trainer(ranks=1, max_steps=stopped_at + 2)
    assert second.train(resume_from_checkpoint=True).global_step == stopped_at + 2
    assert second.state.log_history[0]["step"] == stopped_at + 1


def test_arguments_are_the_import_tables(chat_model):
    """Nothing is restated: every name goes to the program's own table, and what it refuses is raised by name."""
    text, given = run_file({"model_name_or_path": str(chat_model), "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2,
                            "warmup_ratio": 0.1, "lr_scheduler_type": "cosine", "bf16": True, "output_dir": "runs/x"}, "huggingface")
    assert given["trainer.batch_size"] == "3" and given["trainer.gradient_accumulation"] == "2" and given["name"] == "x"
    assert float(yaml.safe_load(text)["trainer"]["learning_rate"]) == 5e-5  # their default
    with pytest.raises(lockstep.ArgumentsRefused) as caught:
        run_file({"model_name": str(chat_model), "label_smoothing_factor": 0.1, "made_up": 1, "max_steps": 3}, "unsloth")
    assert set(caught.value.refused) == {"label_smoothing_factor", "made_up"}
    for more, words in (({"compute_metrics": len}, "compute_metrics"), ({"data_collator": io.StringIO()}, "data_collator StringIO")):
        with pytest.raises(lockstep.LockstepError, match=words):
            lockstep.Trainer(str(chat_model), **more)
    with pytest.raises(lockstep.LockstepError, match="nothing is downloaded"):
        lockstep.FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")


def test_objects_of_transformers_and_peft_are_read():
    from peft import LoraConfig
    from transformers import TrainingArguments
    theirs = TrainingArguments(output_dir="out", per_device_train_batch_size=3, learning_rate=1e-4, bf16=False, report_to="none", use_cpu=True)
    read = lockstep.TrainingArguments.of(theirs).to_dict()
    assert {name: read[name] for name in ("output_dir", "per_device_train_batch_size", "learning_rate", "use_cpu")} == {
        "output_dir": "out", "per_device_train_batch_size": 3, "learning_rate": 1e-4, "use_cpu": True}
    assert "weight_decay" not in read and "adam_beta1" not in read
    run_file({name: value for name, value in read.items()}, "huggingface")  # refuses nothing
    lora = _lora_of(LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    assert lora == {"use_peft": True, "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "lora_target_modules": lora["lora_target_modules"],
                    "lora_task_type": "CAUSAL_LM"}
    assert list(lora["lora_target_modules"]) == ["q_proj"]
    _, given = run_file(lora, "trl")
    assert given["lora.rank"] == "4" and given["lora.target_modules"] == "[q_proj]"


def test_the_plot_is_a_picture_of_all_points():
    history = [{"step": step, "loss": 5 / step} for step in range(1, 2001)] + [{"step": 2000, "eval_loss": 0.5}, {"step": 2001, "loss": None}]
    root = xml.fromstring(loss_svg(history))
    line = next(node for node in root.iter() if node.tag.endswith("polyline"))
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert len(points) == 400 and points[0][0] < points[-1][0] and points[0][1] < points[-1][1]  # down is a smaller loss
    assert len([node for node in root.iter() if node.tag.endswith("circle")]) == 1
    xml.fromstring(loss_svg([]))


@dataclasses.dataclass
class Stand:
    x: int = 1


def test_other_objects_are_refused_by_name():
    assert lockstep.TrainingArguments.of(Stand(2)).to_dict() == {"x": 2}
    with pytest.raises(lockstep.LockstepError, match="args is a int"):
        lockstep.TrainingArguments.of(3)
