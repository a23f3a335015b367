"""A decoder of the Llama kind in PyTorch: norms of mean squares, rotary positions, grouped queries, gated feed-forward layers.

While it learns to be rounded, everything that a quantised network holds in 8 bits is rounded to 256 steps between its smallest and
largest value, and the gradient passes through.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; ``context`` are the positions that it knows."""

    tokens: int = 512
    layers: int = 4
    width: int = 64
    heads: int = 4
    groups: int = 2  # heads of keys and values
    inner: int = 192
    context: int = 256

    @property
    def head(self) -> int:
        return self.width // self.heads


class Rounding(nn.Module):
    """Rounds to 8 bits where ``is_on``."""

    is_on = False

    def forward(self, x: Tensor) -> Tensor:
        if not Rounding.is_on:
            return x
        low, high = x.detach().aminmax()
        step = (high.clamp(min=0) - low.clamp(max=0)).clamp(min=1e-6) / 255
        return x + ((x / step).round() * step - x).detach()


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of the first and second half of the last axis, each turned by the angle of its position."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        keys = shape.groups * shape.head
        self.before, self.between = Norm(shape.width), Norm(shape.width)
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key, self.value = (nn.Linear(shape.width, keys, bias=False) for _ in range(2))
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.gate, self.up = (nn.Linear(shape.width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, shape.width, bias=False)
        self.round = Rounding()

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor], turns: tuple[Tensor, Tensor], mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [batch, rows, width] and the cache of keys and values [batch, groups, past, head] it comes behind."""
        shape, r = self.shape, self.round
        batch, rows = x.shape[0], x.shape[1]
        h = r(self.before(x))
        q = r(self.query(h)).reshape(batch, rows, shape.heads, shape.head).transpose(1, 2)
        k = r(self.key(h)).reshape(batch, rows, shape.groups, shape.head).transpose(1, 2)
        v = r(self.value(h)).reshape(batch, rows, shape.groups, shape.head).transpose(1, 2)
        q, k = r(turned(q, *turns)), r(turned(k, *turns))
        keys, values = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        group = shape.heads // shape.groups
        q = q.reshape(batch, shape.groups, group, rows, shape.head)
        scores = r(q @ keys.unsqueeze(2).transpose(3, 4) * shape.head**-0.5)
        shares = r(torch.softmax(scores + mask, -1))
        mixed = r(shares @ values.unsqueeze(2))
        mixed = mixed.reshape(batch, shape.heads, rows, shape.head).transpose(1, 2).reshape(batch, rows, shape.width)
        x = r(x + r(self.out(mixed)))
        h = r(self.between(x))
        gate = r(self.gate(h))
        x = r(x + r(self.down(r(r(functional.silu(gate)) * r(self.up(h))))))
        return x, keys, values


class Decoder(nn.Module):
    """tokens [batch, rows] and caches to the scores of every row's next token, and the caches with these rows."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)
        self.scores = nn.Linear(shape.width, shape.tokens, bias=False)
        self.round = Rounding()
        angles = torch.arange(shape.context)[:, None] * 10_000.0 ** (-torch.arange(0, shape.head, 2) / shape.head)
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), -1), persistent=False)
        self.register_buffer("sin", torch.cat((angles.sin(), angles.sin()), -1), persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                scale = (2 * shape.layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(weight, std=scale * (weight.shape[1] ** -0.5 if "embedding" not in name else 0.5))

    def forward(self, tokens: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        before, rows = past[0].shape[2], tokens.shape[1]
        turns = self.cos[before : before + rows], self.sin[before : before + rows]
        later = torch.arange(before + rows)[None, :] > torch.arange(before, before + rows)[:, None]
        mask = later.to(torch.float32) * -16.0
        x = self.round(self.embedding(tokens))
        present: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, keys, values = block(x, (past[2 * number], past[2 * number + 1]), turns, mask)
            present += keys, values
        return self.scores(self.round(self.norm(x))), *present

    def empty(self, batch: int) -> list[Tensor]:
        """Caches without rows."""
        return [torch.zeros(batch, self.shape.groups, 0, self.shape.head) for _ in range(2 * self.shape.layers)]
