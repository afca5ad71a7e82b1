"""What golden numbers are kept of: arguments of `lockstep train` beside those of the tiny run that every case shares.

A word in capitals stands for what a device has its own of: RECORDS for chat records with their tokenizer, WIDE for matrices large enough for codes
of 8 bits and blocks of 64.
"""

LORA = ("lora.enabled=true", "lora.target_modules=all-linear", "lora.r=4")

CASES = {
    "untied": (),
    "tied": ("model.tie_embeddings=true",),
    "qkv-bias": ("model.qkv_bias=true",),
    "head-norms": ("model.qk_norm=true",),
    "bf16": ("--dtype", "bf16"),
    "bf16-states": ("--dtype", "bf16", "trainer.optimizer_states=bf16"),
    "f16": ("--dtype", "f16"),
    "accumulation": ("trainer.batch_size=3",),
    "accumulation-bf16": ("trainer.batch_size=1", "--dtype", "bf16"),
    "three-ranks": ("--ranks", "3"),
    "three-ranks-bf16": ("--ranks", "3", "--dtype", "bf16"),
    "clipped": ("trainer.max_grad_norm=0.05",),
    "recompute-norms": ("--recompute", "norms"),
    "recompute-qkv": ("--recompute", "qkv"),
    "recompute-blocks": ("--recompute", "blocks"),
    "window": ("model.sliding_window=5",),
    "adamw-8bit": ("--optimizer", "adamw_8bit", "WIDE"),
    "sgd": ("--optimizer", "sgd", "trainer.learning_rate=0.3"),
    "lion": ("--optimizer", "lion", "trainer.learning_rate=0.0003"),
    "adafactor": ("--optimizer", "adafactor"),
    "muon": ("--optimizer", "muon"),
    "muon-bf16": ("--optimizer", "muon", "--dtype", "bf16", "trainer.optimizer_states=bf16"),
    "lora": LORA,
    "lora-bf16": (*LORA, "--dtype", "bf16"),
    "lora-dropout": (*LORA, "--lora-dropout", "0.2"),
    "lora-dropout-three-ranks": (*LORA, "--lora-dropout", "0.2", "--ranks", "3"),
    "dora": (*LORA, "lora.dora=true"),
    "nf4": (*LORA, "WIDE", "--load-in-4bit", "--dtype", "bf16"),
    "int8": (*LORA, "WIDE", "--load-in-8bit", "--dtype", "bf16"),
    "packed": ("RECORDS", "--packing"),
    "packed-lora-two-ranks": ("RECORDS", "--packing", "--ranks", "2", *LORA),
}

ON_A_GPU_ALONE = {
    "fp8": ("--dtype", "bf16", "trainer.fp8=true"),
}


def in_words(case: str, **meanings) -> list[str]:
    """The case's arguments; `meanings` make those that its words in capitals stand for."""
    arguments = []
    for word in (CASES | ON_A_GPU_ALONE)[case]:
        arguments += meanings[word]() if word in meanings else [word]
    return arguments
