#!/usr/bin/env python3
"""Writes tests/fixtures/average.safetensors: weights over 12 updates and what
torch.optim.swa_utils.AveragedModel makes of them. Run it by hand when it should change."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
UPDATES = 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(3)


def averaged(history, average, use_buffers):
    model = Model()
    model.norm.num_batches_tracked = None  # torch's SWA refuses integer buffers
    averaged = AveragedModel(model, multi_avg_fn=average, use_buffers=use_buffers)
    steps = {name: [] for name in history}
    for update in range(UPDATES):
        weights = {name: values[update] for name, values in history.items()}
        model.load_state_dict(weights, strict=False)
        averaged.update_parameters(model)
        for name, value in averaged.module.state_dict().items():
            if name in steps:
                steps[name].append(value.clone())
    return {name: torch.stack(values) for name, values in steps.items()}


def estimated():
    """update_bn over three batches, and the statistics after it."""
    model = Model()
    batches = [torch.randn(8, 5) for _ in range(3)]

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner.norm(self.inner.linear(x))

    torch.optim.swa_utils.update_bn(batches, Whole())
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    return {"batches": torch.stack(batches), **tensors}


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    names = [n for n, v in Model().state_dict().items() if v.is_floating_point()]
    history = {n: torch.randn(UPDATES, *Model().state_dict()[n].shape) for n in names}
    out = {f"weights/{n}": v for n, v in history.items()}
    cases = {
        "ema": (get_ema_multi_avg_fn(0.9), True),
        "swa": (get_swa_multi_avg_fn(), True),
        "ema_copied": (get_ema_multi_avg_fn(0.9), False),
    }
    for case, (average, use_buffers) in cases.items():
        for name, value in averaged(history, average, use_buffers).items():
            out[f"{case}/{name}"] = value
    out.update({f"update_bn/{n}": v for n, v in estimated().items()})
    save_file({n: v.contiguous() for n, v in out.items()}, FOLDER / "average.safetensors")


main()
