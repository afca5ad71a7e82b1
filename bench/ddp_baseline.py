"""The model of a Lockstep config trained with PyTorch DistributedDataParallel over Gloo, as people write it. Prints step times as JSON.
  torchrun --standalone --nproc-per-node 2 bench/ddp_baseline.py --config models/nano.yaml --steps 20
"""
import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import yaml
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, inner, eps):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        self.norm1 = nn.RMSNorm(hidden, eps)
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.norm2 = nn.RMSNorm(hidden, eps)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)

    def forward(self, x, cosine, sine):
        y = self.norm1(x)
        q, k, v = self.split(self.q(y), self.heads), self.split(self.k(y), self.kv_heads), self.split(self.v(y), self.kv_heads)
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)  # the fused CPU attention knows no groups
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotate(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-b, a), dim=-1) * sine


class Decoder(nn.Module):
    def __init__(self, config, seq_len):
        super().__init__()
        hidden, heads, vocab = config["hidden_size"], config["num_heads"], config["vocab_size"]
        eps = config.get("norm_eps", 1e-5)
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, config.get("kv_heads", heads), config["intermediate_size"], eps)
                                    for _ in range(config["num_layers"]))
        self.norm = nn.RMSNorm(hidden, eps)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if config.get("tie_embeddings", True):
            self.head.weight = self.embedding.weight
        head_dim = hidden // heads
        angles = torch.outer(torch.arange(seq_len), config.get("rope_theta", 10000.0) ** (-torch.arange(0, head_dim, 2) / head_dim)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def optimizer_for(model, trainer):
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": trainer.get("weight_decay", 0.1)},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=trainer["learning_rate"], betas=(0.9, 0.95), eps=1e-8, fused=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--config", required=True)
    arguments.add_argument("--steps", type=int, default=20)
    options = arguments.parse_args()
    with open(options.config) as file:
        config = yaml.safe_load(file)
    batch, seq_len, vocab = config["trainer"]["batch_size"], config["model"]["max_seq_len"], config["model"]["vocab_size"]

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    bare = Decoder(config["model"], seq_len)
    model = DistributedDataParallel(bare, gradient_as_bucket_view=True)
    optimizer = optimizer_for(bare, config["trainer"])
    data = torch.randint(vocab, (64, batch, seq_len + 1))  # already in memory: reading costs this side nothing
    seconds, losses = [], []
    for step in range(options.steps):
        start = time.perf_counter()
        rows = data[step % len(data)]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps({"parameters": sum(p.numel() for p in bare.parameters()), "tokens": batch * seq_len * dist.get_world_size(),
                          "step_seconds": seconds, "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
