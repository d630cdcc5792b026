#!/usr/bin/env python3
"""Training checkpoints of PyTorch after 10 updates, and the weights after 20, for torch_state_test.

Writes tests/fixtures/torch_state: <kind>.pt ({"model", "optimizer", "epoch"} after 10 updates),
expected.safetensors (the weights of each after 20) and rows.safetensors (the data of updates 11 to
20, in order). Needs torch and safetensors; the tests do not.
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = pathlib.Path(__file__).parent.parent / "tests/fixtures/torch_state"
STEPS, BATCH = 20, 5


class Net(nn.Module):
    """tanren's mlp with hidden = [8]."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(6, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.hidden[0](x)))


def two_groups(net):
    """As transformers' Trainer makes them: numbers run group by group."""
    weights = [p for p in net.parameters() if p.dim() > 1]
    biases = [p for p in net.parameters() if p.dim() == 1]
    return [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]


OPTIMIZERS = {
    "adamw": lambda net: torch.optim.AdamW(two_groups(net), lr=0.01, betas=(0.8, 0.99)),
    "adam": lambda net: torch.optim.Adam(net.named_parameters(), lr=0.01, amsgrad=True),
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, dampening=0.1),
}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    inputs = torch.randn(STEPS * BATCH, 6)
    labels = torch.randint(0, 3, (STEPS * BATCH,))
    half = STEPS // 2 * BATCH
    save_file({"inputs": inputs[half:], "labels": labels[half:]}, FOLDER / "rows.safetensors")
    expected = {}
    for kind, make in OPTIMIZERS.items():
        net = Net()
        wrapped = nn.ModuleDict({"module": net}) if kind == "adam" else net
        optimizer = make(wrapped)
        for step in range(STEPS):
            if step == STEPS // 2:
                torch.save(
                    {
                        "model": wrapped.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "epoch": 1,
                    },
                    FOLDER / f"{kind}.pt",
                )
            rows = slice(step * BATCH, (step + 1) * BATCH)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), labels[rows]).backward()
            optimizer.step()
        for name, tensor in net.state_dict().items():
            expected[f"{kind}.{name}"] = tensor.clone()
    save_file(expected, FOLDER / "expected.safetensors")


if __name__ == "__main__":
    main()
