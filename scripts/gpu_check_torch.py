#!/usr/bin/env python3
"""Times a training step of the GPT that the piece `training` of scripts/gpu-check trains, in PyTorch, and writes its figures."""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="the small size of gpu-check --quick")
parser.add_argument("--out", required=True, help="the file for the figures")
options = parser.parse_args()
layers, heads, width, block, batch, steps = (1, 2, 32, 16, 2, 6) if options.quick else (12, 12, 768, 1024, 8, 30)
vocabulary = 65
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))

    def forward(self, x):
        q, k, v = (t.view(*t.shape[:2], heads, -1).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(mixed)
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight
        for one in self.blocks:
            x = one(x)
        return self.norm(x) @ self.tokens.weight.T


model = Gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
times = []
for _ in range(steps):
    ids = torch.randint(vocabulary, (batch, block + 1), device=device)
    begin = time.perf_counter()
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    times.append(time.perf_counter() - begin)
with open(options.out, "w", encoding="utf-8") as out:
    out.write(f"PyTorch {torch.__version__}, a step\t{1e3 * statistics.median(times[len(times) // 2:]):.4g}\tms\tlower\n")
