#!/usr/bin/env python3
"""Writes answers to many prompts at once, spread over every GPU: each holds the whole model and takes its share.

    python multi_gpu_inference.py --model DIR --prompts questions.txt
    python multi_gpu_inference.py --run runs/multi_gpu_training
"""
import argparse
import pathlib
import time

import lockstep

PROMPTS = ["Once upon a time", "The sea", "A dog and a cat", "In the forest", "One day", "The old house", "She said", "There was a boy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="a Hugging Face model folder")
    which.add_argument("--run", help="the folder of a run; its newest checkpoint writes")
    parser.add_argument("--adapter", help="a PEFT folder for --model")
    parser.add_argument("--prompts", type=pathlib.Path, help="a file with one prompt a line")
    parser.add_argument("--chat", action="store_true", help="prompts are what a user says, answered by way of the chat template")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--ranks", type=int, help="one a GPU if left out")
    parser.add_argument("--device", help="cpu or cuda; the best there is if left out")
    options = parser.parse_args()

    prompts = options.prompts.read_text().splitlines() if options.prompts else PROMPTS
    asked = [[{"role": "user", "content": prompt}] for prompt in prompts] if options.chat else prompts
    begun = time.perf_counter()
    answers = lockstep.generate(asked, model=options.model, run=options.run, adapter=options.adapter, ranks=options.ranks, device=options.device,
                                max_tokens=options.max_tokens, seed=7)
    seconds = time.perf_counter() - begun
    for prompt, answer in zip(prompts, answers):
        print(f"{prompt}\n    {answer.text.strip()}  [{answer.finish}]")
    print(f"{len(answers)} prompts in {seconds:.1f} s, the start of the ranks included")


if __name__ == "__main__":
    main()
