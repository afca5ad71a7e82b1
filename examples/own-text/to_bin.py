"""Writes the words of a text as u32 tokens: python3 to_bin.py book.txt book.bin"""
import array
import re
import sys

words = re.findall(r"\w+|\W", open(sys.argv[1], encoding="utf-8").read())
number = {word: i for i, word in enumerate(sorted(set(words)))}
with open(sys.argv[2], "wb") as file:
    array.array("I", [number[word] for word in words]).tofile(file)
print(f"{len(words)} tokens; train with model.vocab_size={len(number)}")
