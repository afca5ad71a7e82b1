#!/usr/bin/env python3
"""Trains on every GPU of the machine, or on two CPU ranks where there is none.

    python multi_gpu_training.py                                     # a 10-million-parameter model on made-up stories
    python multi_gpu_training.py --model DIR --data chat.jsonl       # a LoRA adapter for a Hugging Face folder
    torchrun --nproc-per-node 2 multi_gpu_training.py                # the same, with ranks that torchrun starts

Under torchrun every process runs this script and becomes one rank; otherwise Lockstep starts its own.
"""
import argparse

import lockstep
from lockstep.distributed import is_main_process, print_distributed_info, wait_for_everyone


def trainer_for(options, arguments):
    launch = {name: value for name, value in (("ranks", options.ranks), ("device", options.device)) if value is not None}
    if options.model is None:
        return lockstep.Trainer("models/nano.yaml", args=arguments, train_dataset=options.data, launch=launch, callbacks=[stop_when_good])
    model, tokenizer = lockstep.FastLanguageModel.from_pretrained(options.model, max_seq_length=options.seq_len, load_in_4bit=options.load_in_4bit)
    model = lockstep.FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, use_gradient_checkpointing="unsloth")
    return lockstep.SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=options.data, args=arguments, launch=launch, callbacks=[stop_when_good])


class stop_when_good(lockstep.TrainerCallback):
    """Ends a run whose loss says that it has learned all there is."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        control.should_training_stop = logs["loss"] is not None and logs["loss"] < 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a Hugging Face model folder; none: a small model from random weights")
    parser.add_argument("--data", help="conversations or texts, JSONL or Parquet; none: made-up stories")
    parser.add_argument("--output", default="runs/multi_gpu_training", help="the run's folder")
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--ranks", type=int, help="one a GPU if left out")
    parser.add_argument("--device", help="cpu or cuda; the best there is if left out")
    parser.add_argument("--load-in-4bit", action="store_true")
    options = parser.parse_args()

    print_distributed_info()
    arguments = lockstep.TrainingArguments(output_dir=options.output, max_steps=options.max_steps, per_device_train_batch_size=4,
                                           learning_rate=2.5e-3 if options.model is None else 2e-4, logging_steps=1, seed=7)
    trainer = trainer_for(options, arguments)
    result = trainer.train()
    wait_for_everyone()
    if is_main_process():
        print(f"{result.global_step} steps, mean loss {result.training_loss:.4f}, in {trainer.run.folder}")
        print("It writes:", trainer.run.generate("Once upon a time", max_tokens=24, temperature=0))


if __name__ == "__main__":
    main()
