"""Data for speed rows on a machine without a network: conversations of many lengths, and a tokenizer as large as Llama 3's.

Both are made from a seed, so every machine has the same. What the words say does not matter to a step's time; how long records are, and
how many tokens a tokenizer has, does.
"""
import json
import pathlib
import random

VOCABULARY = 128_000
SYLLABLES = [a + b for a in ("b", "d", "f", "k", "l", "m", "n", "p", "r", "s", "t", "v") for b in ("a", "e", "i", "o", "u", "an", "er", "in")]
TEMPLATE = ("{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
            "{%- if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
            "{%- else %}{{ message['content'] + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
            "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def vocabulary_of_words() -> list[str]:
    draws = random.Random(1)
    return [draws.choice(SYLLABLES) + draws.choice(SYLLABLES) for _ in range(2000)]


def byte_letters() -> list[str]:
    """How byte-level tokenizers spell the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + number) for number in range(len(others))]


def write_tokenizer(folder: pathlib.Path, size: int = VOCABULARY) -> pathlib.Path:
    """A byte-level BPE of `size` tokens and three special ones, chat template included: some 17 MB at 128,000."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = random.Random(1)
    tokens = byte_letters()
    known, merges = set(tokens), []

    def learn(first: str, second: str) -> None:
        if first + second not in known and len(tokens) < size:
            known.add(first + second)
            tokens.append(first + second)
            merges.append([first, second])

    for word in [*SYLLABLES, *vocabulary_of_words()]:  # the words of the conversations, letter by letter
        for spelled in (word, "Ġ" + word):
            for end in range(2, len(spelled) + 1):
                learn(spelled[:end - 1], spelled[end - 1])
    while len(tokens) < size:  # and many that never occur
        learn(tokens[draws.randrange(256, min(len(tokens), 6000))], tokens[draws.randrange(256, min(len(tokens), 6000))])
    for token in tokens[256:]:  # other ways to the same tokens, as converted tokenizers list them
        merges += [[token[:cut], token[cut:]] for cut in range(1, len(token) - 1) if token[:cut] in known and token[cut:] in known][:2]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    added = [{"id": size + number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for number, text in enumerate(special)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level,
               "post_processor": None, "decoder": byte_level,
               "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                         "byte_fallback": False, "ignore_merges": False, "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges}}
    (folder / "tokenizer.json").write_text(json.dumps(content, indent=2, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}))
    return folder


def write_conversations(path: pathlib.Path, records: int) -> pathlib.Path:
    """One question and one answer each; lengths as chats have them: most are short, a few fill a row."""
    draws = random.Random(2)
    words = vocabulary_of_words()
    text = lambda count: " ".join(draws.choice(words) for _ in range(count))
    with path.open("w") as out:
        for _ in range(records):
            length = min(900, max(12, int(draws.lognormvariate(5.0, 0.9))))
            messages = [{"role": "user", "content": text(max(4, length // 4))}, {"role": "assistant", "content": text(length)}]
            out.write(json.dumps({"messages": messages}) + "\n")
    return path
