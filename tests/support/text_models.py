"""Tiny model folders that can write: a random model, a tokenizer whose tokens are words, and a chat template."""
import json
import pathlib
import subprocess

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from support.lockstep import LOCKSTEP, ROOT
from support.model_folders import VOCABULARY, make_model, save

SPECIAL = ["<s>", "</s>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>"]
WORDS = [f"w{i}" for i in range(len(SPECIAL), VOCABULARY)]
TEMPLATE = ("{% for message in messages %}<|{{ message.role }}|> {{ message.content }} </s> {% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def write_tokenizer(folder: pathlib.Path, tokenizer: Tokenizer, template: str | None = TEMPLATE) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "tokenizer_class": "PreTrainedTokenizerFast"}
    if template:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def word_tokenizer() -> Tokenizer:
    """A text is its tokens: texts are equal where tokens are."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(SPECIAL + WORDS)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    """Tokens are parts of characters too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(["wenn möglich, größer – 日本語のテキスト, naïve café 😀😀"] * 4, trainer)
    return tokenizer


def make_folder(folder: pathlib.Path, family: str = "Llama", template: str | None = TEMPLATE, tokenizer: Tokenizer | None = None, **changes):
    """Returns the model as transformers holds it."""
    tokenizer = tokenizer or word_tokenizer()
    model = make_model(family, vocab_size=tokenizer.get_vocab_size(), **IDS, **changes)
    save(model, folder)
    write_tokenizer(folder, tokenizer, template)
    return model


def lockstep(*args, code: int | None = 0, stdin: str | None = None, timeout: float = 180):
    done = subprocess.run([str(LOCKSTEP), *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=timeout, input=stdin)
    assert code is None or done.returncode == code, f"{args}\n{done.stdout}{done.stderr}"
    return done


def generate_file(folder: pathlib.Path, lines: list[dict], *args, model: pathlib.Path, name: str = "out") -> list[dict]:
    (folder / f"{name}.in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = folder / f"{name}.jsonl"
    lockstep("generate", "--model", model, "--file", folder / f"{name}.in.jsonl", "--output", out, "--device", "cpu", *args)
    return [json.loads(line) for line in out.read_text().splitlines()]
