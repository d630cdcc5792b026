#!/usr/bin/env python3
"""Makes digits.package, which tanren trains without Python, of a model that tanren has no kind for.

    PYTHONPATH=python python3 examples/python_model/export.py [FOLDER]

It needs torch 2.11.0, safetensors and g++, and writes into FOLDER (this file's). With --torchscript it writes
net.pt instead, the same model as TorchScript, smaller.
"""

import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional

import tanren_export as te


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021) on pictures of 8 × 8: patches of 2 × 2, mixed across places, then channels."""

    def __init__(self, width, layers, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.blocks = nn.ModuleList(Block(width, places=16) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs):
        x = self.patches(inputs).flatten(2).transpose(1, 2)  # [n, places, width]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Block(nn.Module):
    def __init__(self, width, places):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


def loss(model, batch):
    """Sums over the samples: tanren divides by the count of the whole batch."""
    scores = model(batch["inputs"])
    summed = functional.cross_entropy(scores, batch["labels"], reduction="sum")
    # Scores that do not grow: the second term of ST-MoE (Zoph et al. 2022).
    size = torch.logsumexp(scores, 1).square().sum()
    return te.Terms(scores, cross_entropy=te.Sum(summed, count="samples"), z=te.Sum(size, count="samples", weight=1e-4))


def main():
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    words.add_argument("--torchscript", action="store_true")
    chosen = words.parse_args()
    torch.manual_seed(0)
    if chosen.torchscript:
        torch.jit.script(Mixer(width=8, layers=1)).save(str(chosen.folder / "net.pt"))
        return
    example = {"inputs": torch.rand(4, 1, 8, 8), "labels": torch.randint(10, (4,))}
    te.export(Mixer(width=64, layers=4), loss, example, chosen.folder / "digits.package", metrics="classes")


if __name__ == "__main__":
    main()
