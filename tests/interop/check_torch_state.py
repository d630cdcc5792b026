#!/usr/bin/env python3
"""Checks that 10 updates in tanren and 10 in torch equal 20 in tanren: check_torch_state.py TANREN

Trains an mlp for 10 updates, writes it with `tanren convert --optimizer`, loads that with
torch.load(weights_only=True) and load_state_dict, continues in torch, and compares the weights with
those of a tanren run of 20 updates. Packed moments are written as fp32, so those runs are compared
with a larger tolerance. Needs torch and safetensors.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn

BATCH = 5
CONFIG = """
[run]
threads = 1
steps = 20
[model]
kind = "mlp"
hidden = [{hidden}]
[data]
shuffle = false
[data.train]
kind = "tensors"
path = "rows.safetensors"
[batch]
global_batch = {batch}
[precision]
mode = "fp32"
[optimizer]
{optimizer}
"""


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(6, hidden)])
        self.head = nn.Linear(hidden, 3)

    def forward(self, x):
        return self.head(torch.relu(self.hidden[0](x)))


def groups(net):
    weights = [p for p in net.parameters() if p.dim() > 1]
    biases = [p for p in net.parameters() if p.dim() == 1]
    return [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]


ADAMW = 'kind = "adamw"\nlearning_rate = 0.001\nweight_decay = 0.1'
PLAIN, LOOSE = (8, 1e-6), (1024, 1e-2)  # width, largest difference: only large parameters are packed

CASES = {
    "adamw": (
        'kind = "adamw"\nlearning_rate = 0.01\nweight_decay = 0.1\ndecay_norms_and_biases = false',
        lambda net: torch.optim.AdamW(groups(net), lr=1.0),
        PLAIN,
    ),
    "adamw, 8-bit state": (
        ADAMW + '\nstate = "8bit"',
        lambda net: torch.optim.AdamW(net.parameters(), lr=1.0),
        LOOSE,
    ),
    "adamw, bf16 state": (
        ADAMW + '\nstate = "bf16"',
        lambda net: torch.optim.AdamW(net.parameters(), lr=1.0),
        LOOSE,
    ),
    "adam": (
        'kind = "adam"\nlearning_rate = 0.01\namsgrad = true',
        lambda net: torch.optim.Adam(net.named_parameters(), lr=1.0),
        PLAIN,
    ),
    "sgd": (
        'kind = "sgd"\nlearning_rate = 0.1\nmomentum = 0.9\ndampening = 0.1\nweight_decay = 0',
        lambda net: torch.optim.SGD(net.parameters(), lr=1.0),
        PLAIN,
    ),
}


def check(tanren, name, folder):
    options, make, (hidden, _) = CASES[name]
    text = CONFIG.format(batch=BATCH, optimizer=options, hidden=hidden)
    (folder / "run.toml").write_text(text)
    rows = {"inputs": torch.randn(20 * BATCH, 6), "labels": torch.randint(0, 3, (20 * BATCH,))}
    save_file(rows, folder / "rows.safetensors")

    def call(*arguments):
        subprocess.run([tanren, *arguments, "--quiet"], check=True, cwd=folder)

    call("run", "run.toml", "--out", "whole")
    call("run", "run.toml", "--out", "half", "--set", "run.stop_after=10")
    call("convert", "half", "half.pt", "--optimizer")
    checkpoint = torch.load(folder / "half.pt", weights_only=True)
    net = Net(hidden)
    net.load_state_dict(checkpoint["model"])
    optimizer = make(net)
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert checkpoint["step"] == 10
    for parameter in net.parameters():
        for key, tensor in optimizer.state[parameter].items():
            assert key == "step" or tensor.shape == parameter.shape, (name, key)
            assert tensor.dtype == torch.float32 and tensor.abs().max() > 0, (name, key)
    for step in range(10, 20):
        part = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(rows["inputs"][part]), rows["labels"][part]).backward()
        optimizer.step()
    whole = load_file(folder / "whole/model.safetensors")
    return max(
        ((tensor - whole[key]).norm() / whole[key].norm()).item()
        for key, tensor in net.state_dict().items()
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tanren = str(pathlib.Path(sys.argv[1]).resolve())
    failed = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            error = check(tanren, name, pathlib.Path(folder))
        print(f"{name}: largest relative difference {error:.2e}")
        if error > CASES[name][2][1]:
            failed.append(name)
    if failed:
        sys.exit("too large: " + ", ".join(failed))


if __name__ == "__main__":
    main()
