"""The decoder, the global order, the learning rate and the step in plain PyTorch and Python: what `lockstep train` must equal.

Written from the rules alone, so it is also their specification: which sample comes when, what the loss is divided by, what decays."""
import math

import torch
import torch.nn.functional as F

BITS_64 = (1 << 64) - 1


def mix(value: int) -> int:
    """The finalizer of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & BITS_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS_64
    return value ^ (value >> 31)


def keyed(key: int, value: int) -> int:
    return mix(mix(key) ^ value)


def epoch_order(samples: int, seed: int, epoch: int, shuffle: bool = True) -> list[int]:
    """Sample numbers of one epoch, in order: six Feistel rounds over two equal halves, repeated until the place is a sample."""
    if not shuffle:
        return list(range(samples))
    half_bits = max(1, ((samples - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    key = keyed(seed, epoch)

    def sample_at(place: int) -> int:
        while True:
            left, right = place >> half_bits, place & mask
            for number in range(6):
                left, right = right, left ^ (keyed((key + number) & BITS_64, right) & mask)
            place = left << half_bits | right
            if place < samples:
                return place

    return [sample_at(position) for position in range(samples)]


def global_batches(samples: int, global_batch: int, seed: int, shuffle: bool = True):
    """Sample numbers of global batch 0, 1, ...: the last of an epoch may be short, none reaches into the next epoch."""
    epoch = 0
    while True:
        order = epoch_order(samples, seed, epoch, shuffle)
        yield from (order[first : first + global_batch] for first in range(0, samples, global_batch))
        epoch += 1


def training_samples(tokens: int, seq_len: int, validation_fraction: float) -> int:
    """Samples of seq_len tokens and the one after them, cut without overlap; validation takes the last ones."""
    samples = (tokens - 1) // seq_len
    return samples - min(samples - 1, math.floor(samples * validation_fraction + 0.5))


def learning_rate(trainer: dict, step: int, total: int) -> float:
    """Of update `step`, counted from 0."""
    peak, warmup = trainer["learning_rate"], trainer["warmup_steps"]
    if step < warmup:
        return peak * (step + 1) / warmup
    low = peak * trainer["min_lr_ratio"]

    def behind(start: int) -> float:
        return min(1.0, max(0.0, (step - start) / max(total - 1 - start, 1)))

    match trainer["lr_schedule"]:
        case "constant":
            return peak
        case "linear":
            return peak + (low - peak) * behind(warmup)
        case "cosine":
            return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * behind(warmup)))
        case "wsd":
            return peak + (low - peak) * behind(max(warmup, total - math.ceil(total * trainer["decay_fraction"])))
    raise ValueError(trainer["lr_schedule"])


class RMSNorm(torch.nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, theta: float):
    """x: [batch, heads, time, head_dim]; dimension i turns with dimension i + head_dim / 2."""
    time, half = x.shape[-2], x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(time, dtype=torch.float64)[:, None] * frequencies
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


class Attention(torch.nn.Module):
    def __init__(self, model: dict):
        super().__init__()
        self.heads, self.kv_heads = model["num_heads"], model["kv_heads"]
        self.head_dim, self.theta, bias = model["head_dim"], model["rope_theta"], model["qkv_bias"]
        hidden = model["hidden_size"]
        self.q_proj = torch.nn.Linear(hidden, self.heads * self.head_dim, bias=bias)
        self.k_proj = torch.nn.Linear(hidden, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = torch.nn.Linear(hidden, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = torch.nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(self.head_dim, model["norm_eps"]) if model["qk_norm"] else torch.nn.Identity()
        self.k_norm = RMSNorm(self.head_dim, model["norm_eps"]) if model["qk_norm"] else torch.nn.Identity()

    def forward(self, x):
        batch, time, _ = x.shape
        q = self.q_proj(x).view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(self.q_norm(q), self.theta), rotate(self.k_norm(k), self.theta)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, time, -1))


class SwiGLU(torch.nn.Module):
    def __init__(self, model: dict):
        super().__init__()
        hidden, inner = model["hidden_size"], model["intermediate_size"]
        self.gate_proj = torch.nn.Linear(hidden, inner, bias=False)
        self.up_proj = torch.nn.Linear(hidden, inner, bias=False)
        self.down_proj = torch.nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(torch.nn.Module):
    def __init__(self, model: dict):
        super().__init__()
        self.input_layernorm = RMSNorm(model["hidden_size"], model["norm_eps"])
        self.self_attn = Attention(model)
        self.post_attention_layernorm = RMSNorm(model["hidden_size"], model["norm_eps"])
        self.mlp = SwiGLU(model)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(torch.nn.Module):
    """Parameter names are those of Hugging Face's Llama and Qwen models, and so those of our checkpoints."""

    def __init__(self, model: dict):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.model.layers = torch.nn.ModuleList(Block(model) for _ in range(model["num_layers"]))
        self.model.norm = RMSNorm(model["hidden_size"], model["norm_eps"])
        if not model["tie_embeddings"]:
            self.lm_head = torch.nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for block in self.model.layers:
            x = block(x)
        x = self.model.norm(x)
        return self.lm_head(x) if hasattr(self, "lm_head") else F.linear(x, self.model.embed_tokens.weight)


def optimizer_for(decoder: Decoder, trainer: dict) -> torch.optim.AdamW:
    """Weight decay is for matrices: norms and biases are left alone."""
    matrices = [p for p in decoder.parameters() if p.dim() == 2]
    vectors = [p for p in decoder.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": trainer["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(trainer["beta1"], trainer["beta2"]), eps=trainer["epsilon"])


def train(decoder: Decoder, tokens: torch.Tensor, trainer: dict, data: dict, seq_len: int, steps: int) -> list[dict]:
    """One line of loss, grad_norm, learning_rate and tokens a step. The whole global batch at once: nothing is accumulated or spread."""
    samples = training_samples(len(tokens), seq_len, data["validation_fraction"])
    batches = global_batches(samples, trainer["global_batch_size"], trainer["seed"], data["shuffle"])
    optimizer = optimizer_for(decoder, trainer)
    lines, trained = [], 0
    for step in range(steps):
        rows = torch.stack([tokens[number * seq_len : (number + 1) * seq_len + 1] for number in next(batches)])
        logits = decoder(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum") / rows[:, 1:].numel()
        optimizer.zero_grad()
        loss.backward()
        limit = trainer["max_grad_norm"] or math.inf
        norm = torch.nn.utils.clip_grad_norm_(decoder.parameters(), limit)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(trainer, step, steps)
        optimizer.step()
        trained += rows[:, 1:].numel()
        lines.append({"loss": loss.item(), "grad_norm": norm.item(), "learning_rate": optimizer.param_groups[0]["lr"], "tokens": trained})
    return lines
