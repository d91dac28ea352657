"""Trains a small character model on a text. It knows nothing of ablate.

python train.py --norm rms --activation relu2 --lr 3e-3 --seed 0 --epochs 5
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TEXT = Path(__file__).parents[2] / "LICENSE"
CONTEXT = 48
BATCH = 32
STEPS = 40


def rotated(x: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021). x is (batch, heads, length, even width)."""
    length, width = x.shape[-2:]
    frequencies = 1e4 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angles = torch.arange(length, device=x.device)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Block(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        norm: str,
        activation: str,
        positions: str,
        qk_norm: bool,
    ) -> None:
        super().__init__()
        make = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[norm]
        self.norm1, self.norm2 = make(width), make(width)
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation = activation
        self.positions, self.qk_norm = positions, qk_norm

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if self.qk_norm:
            q, k = F.rms_norm(q, q.shape[-1:]), F.rms_norm(k, k.shape[-1:])
        if self.positions == "rotary":
            q, k = rotated(q), rotated(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = self.up(self.norm2(x))
        if self.activation == "relu2":
            hidden = F.relu(hidden).square()
        else:
            hidden = F.gelu(hidden)
        return x + self.down(hidden)


class CharacterModel(nn.Module):
    def __init__(
        self,
        characters: int,
        norm: str,
        activation: str,
        positions: str = "learned",
        qk_norm: bool = False,
        tied: bool = False,
        depth: int = 2,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(characters, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.places = None
        if positions == "learned":
            self.places = nn.Embedding(CONTEXT, width)
            nn.init.normal_(self.places.weight, std=0.02)
        blocks = [
            Block(width, 4, norm, activation, positions, qk_norm) for _ in range(depth)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, characters)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.blocks(x))


def tokenized(text: str) -> tuple[Tensor, int]:
    """Returns a text as tokens, and the number of different characters."""
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    return torch.tensor([number[character] for character in text]), len(characters)


def read_text() -> tuple[Tensor, Tensor, int]:
    """Returns the first 90 % and the rest of the text as tokens, and their number."""
    tokens, characters = tokenized(TEXT.read_text())
    split = int(0.9 * len(tokens))
    return tokens[:split], tokens[split:], characters


def bits(model: nn.Module, tokens: Tensor) -> Tensor:
    """Mean loss per character, in bits. Tokens are (batch, context + 1)."""
    logits = model(tokens[:, :-1])
    nats = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return nats / math.log(2)


class Learner:
    """A model and its optimiser."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def fit(self, text: Tensor) -> float:
        """Makes STEPS updates; returns the mean loss in bits."""
        self.model.train()
        total = 0.0
        for _ in range(STEPS):
            starts = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1))
            loss = bits(self.model, text[starts + torch.arange(CONTEXT + 1)])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / STEPS

    @torch.no_grad()
    def evaluate(self, text: Tensor) -> float:
        self.model.eval()
        rows = len(text) // (CONTEXT + 1)
        tokens = text[: rows * (CONTEXT + 1)].view(rows, -1)
        return bits(self.model, tokens).item()

    def save(self, path: Path) -> None:
        torch.save([self.model.state_dict(), self.optimizer.state_dict()], path)

    def load(self, path: Path) -> None:
        model, optimizer = torch.load(path, weights_only=True)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--norm", default="layer")
    parser.add_argument("--activation", default="gelu")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=5)
    said = parser.parse_args()
    torch.manual_seed(said.seed)
    train, test, characters = read_text()
    model = CharacterModel(characters, said.norm, said.activation)
    learner = Learner(model, said.lr)
    for epoch in range(1, said.epochs + 1):
        loss = learner.fit(train)
        print(f"epoch {epoch}: {loss:.3f} bits, test {learner.evaluate(test):.3f} bits")


if __name__ == "__main__":
    main()
