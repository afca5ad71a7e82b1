#!/usr/bin/env python3
"""One Hugging Face training step, as people run it: the yardstick for `lockstep bench step`.

    python3 bench/hf_baseline.py --model models/qwen2.5-0.5b.yaml --seq 1024 --batch 16 --mode eager

The same shape from random weights, bf16 weights and bf16 AdamW states (fused), sdpa attention, random tokens; the median of 10 steps
after 5, the GPU waited for around each. With --lora N the weights are frozen and PEFT's adapters of that rank, bf16 too, stand beside every
matrix of a block. One model and mode a process, one line of JSON. Needs torch and transformers, for --lora peft.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time


def model_shape(path: pathlib.Path) -> dict:
    """The `model:` section of a config file. It holds only `key: value` lines, so no YAML package is needed."""
    shape, inside = {}, False
    for line in path.read_text().splitlines():
        text = line.split("#")[0].rstrip()
        if text and not text.startswith(" "):
            inside = text == "model:"
        elif inside and ":" in text:
            key, value = (part.strip() for part in text.split(":", 1))
            shape[key] = {"true": True, "false": False}.get(value, value)
    for key, value in shape.items():
        if isinstance(value, str) and key not in ("name", "dtype"):
            shape[key] = float(value) if "." in value or "e" in value else int(value)
    return shape


def hugging_face_config(shape: dict, seq: int):
    """Qwen2 where queries, keys and values have a bias, else Llama: the two families that models/ holds."""
    from transformers import LlamaConfig, Qwen2Config

    hidden, heads = shape["hidden_size"], shape["num_heads"]
    common = dict(
        hidden_size=hidden, num_hidden_layers=shape["num_layers"], num_attention_heads=heads, num_key_value_heads=shape.get("kv_heads", heads),
        head_dim=shape.get("head_dim", hidden // heads), intermediate_size=shape.get("intermediate_size", (hidden * 8 // 3 + 63) // 64 * 64),
        vocab_size=shape["vocab_size"], max_position_embeddings=max(seq, shape.get("max_seq_len", seq)), rms_norm_eps=shape.get("norm_eps", 1e-5),
        tie_word_embeddings=shape.get("tie_embeddings", True), use_cache=False,
    )
    if shape.get("qk_norm"):
        sys.exit("this baseline knows no family with head norms")
    config = Qwen2Config(**common) if shape.get("qkv_bias") else LlamaConfig(**common, attention_bias=False)
    theta = float(shape.get("rope_theta", 10000))
    if getattr(config, "rope_parameters", None) is not None:  # transformers 5
        config.rope_parameters["rope_theta"] = theta
    else:
        config.rope_theta = theta
    return config


def attention_used(config, args, dtype) -> str:
    """Which kernels sdpa takes for this model's shapes: their names, from a profile of one call."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if args.device != "cuda":
        return "sdpa on a CPU"
    shape = (args.batch, config.num_attention_heads, args.seq, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.cuda.synchronize()
    names = " ".join(event.key.lower() for event in seen.key_averages())
    return next((f"sdpa ({kind})" for kind in ("cudnn", "flash", "fmha", "mem_eff") if kind in names), "sdpa (math)")


def measure(args) -> dict:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    on_gpu = args.device == "cuda"
    config = hugging_face_config(model_shape(args.model), args.seq)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    if args.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=args.lora, lora_alpha=2 * args.lora, target_modules="all-linear"), autocast_adapter_dtype=False)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=on_gpu)
    run = torch.compile(model) if args.mode == "compile" else model
    batches = [torch.randint(config.vocab_size, (args.batch, args.seq), device=args.device) for _ in range(4)]

    def synchronize():
        if on_gpu:
            torch.cuda.synchronize()

    def step(number: int):
        tokens = batches[number % len(batches)]
        run(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    begun = time.perf_counter()
    step(0)
    synchronize()
    first_step = time.perf_counter() - begun
    for number in range(1, args.warm_up):
        step(number)
    synchronize()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for number in range(args.steps):
        begun = time.perf_counter()
        step(number)
        synchronize()
        seconds.append(time.perf_counter() - begun)
    median = statistics.median(seconds)
    peft = sys.modules.get("peft")
    return {
        "bench": "hugging face", "mode": args.mode, "model": args.model.stem, "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in trained),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "dtype": args.dtype, "optimizer": f"AdamW, {args.dtype} states",
        "seq_len": args.seq, "batch_size": args.batch, "warm_up": args.warm_up,
        "step_seconds": {"median": median, "min": min(seconds), "max": max(seconds)}, "first_step_seconds": first_step,
        "tokens_per_second": args.batch * args.seq / median, "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__ if peft else None,
        "attention": attention_used(config, args, dtype), "raw_step_seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a config file of ours; only its model section is read")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters beside frozen weights; 0: all weights are trained")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=5)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
