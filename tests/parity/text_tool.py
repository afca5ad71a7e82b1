"""What the parity tests of src/text share: the tool that calls it, and small tokenizers made on the spot."""
import json
import os
import pathlib
import subprocess

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin" / "text_tool"
REAL = ROOT / ".deps-test" / "tokenizers"  # from tools/setup-tokenizers.sh

CORPUS = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))] + [
    "Ein schöner Tag, ça va très bien, 你好世界, こんにちは, Привет мир! 👍🏽 ✨ 1234567890 + 3.14 = ?",
]


class TextTool:
    """One running tool; ask("encode", folder=..., text=...) gives its answer."""

    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, call: str, **request) -> dict:
        self.process.stdin.write(json.dumps({"call": call, **request}, default=str) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "bug" not in answer, answer
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0


def byte_level(vocab_size=600, special=("<|endoftext|>",), add_prefix_space=False):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(CORPUS, trainer)
    return made


def unigram():
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", made.token_to_id("</s>"))])
    return made


def wordpiece():
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
    return made


def byte_fallback():
    """As SentencePiece models are converted: no pre-tokenizer, a word sign before the text, bytes for what is unknown."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["▁"]
    letters = sorted({c for text in CORPUS[:3] for c in text if c.isalpha() and c.isascii()})
    vocab = {piece: i for i, piece in enumerate(pieces + letters + ["▁t", "he", "▁the", "in", "er"])}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("i", "n"), ("e", "r")]
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    return made
