#!/usr/bin/env python3
"""PyTorch's side of package_bench: models that it exports, and their training steps with fused AdamW.

    package_torch.py export WHAT bf16|fp32 FOLDER                  writes FOLDER/net.package, or net.pt, and the batch
    package_torch.py eager|compile WHAT bf16|fp32 THREADS FOLDER   one training step for each line read

WHAT is the number of layers of a BERT (sequence classification, 8 × 128 tokens, dropout 0.1), mlp (64-128-128-10, 32
samples) or resnet50 (8 images of 224 × 224; exported as TorchScript). A step starts from the exported weights, on
FOLDER/batch.safetensors. Each answer is the step's seconds, its loss, and the most memory (kB) that this process has
had. "ready" is printed before the first step, so that its time has the compiler's in it.
"""

import os
import pathlib
import re
import sys
import time

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy


def model_of(what):
    if what == "mlp":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    if what == "resnet50":
        import torchvision

        return torchvision.models.resnet50()
    import transformers

    sizes = transformers.BertConfig(num_labels=2, num_hidden_layers=int(what))
    return transformers.BertForSequenceClassification(sizes)


def batch_of(what):
    if what == "mlp":
        return {"inputs": torch.randn(32, 64), "labels": torch.randint(10, (32,))}
    if what == "resnet50":
        return {"inputs": torch.randn(8, 3, 224, 224), "labels": torch.randint(1000, (8,))}
    return {
        "inputs": torch.randint(30522, (8, 128)),
        "attention_mask": torch.ones(8, 128, dtype=torch.int64),
        "labels": torch.randint(2, (8,)),
    }


def summed(model, batch):
    if "attention_mask" in batch:
        scores = model(batch["inputs"], attention_mask=batch["attention_mask"]).logits
    else:
        scores = model(batch["inputs"])
    return scores, cross_entropy(scores, batch["labels"], reduction="sum")


def export(what, precision, folder):
    torch.manual_seed(0)
    model, batch = model_of(what), batch_of(what)
    save_file(batch, folder / "batch.safetensors")
    if what == "resnet50":
        torch.jit.script(model).save(str(folder / "net.pt"))
        return
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
    import tanren_export as te

    def loss(model, batch):
        scores, total = summed(model, batch)
        return te.Terms(scores, cross_entropy=te.Sum(total))

    tokens = {"tokens": ["inputs.1", "attention_mask.1"]} if "attention_mask" in batch else None
    te.export(model, loss, batch, folder / "net.package", precision=precision, dynamic=tokens, metrics="classes")


def weights_in(folder):
    script = folder / "net.pt"
    if script.exists():
        return torch.jit.load(str(script)).state_dict()
    return load_file(folder / "net.package/weights.safetensors")


def most_memory():
    # getrusage would count what the program that started this one had.
    return re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text()).group(1)


def steps(variant, what, precision, folder):
    model, batch = model_of(what), load_file(folder / "batch.safetensors")
    model.load_state_dict(weights_in(folder))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    forward = torch.compile(summed) if variant == "compile" else summed
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(model, batch)[1] / len(batch["labels"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        told = loss.item()
        seconds = time.perf_counter() - begin
        print(seconds, f"{told:.4f}", most_memory(), flush=True)


def main():
    variant, what, precision, *rest = sys.argv[1:]
    folder = pathlib.Path(rest[-1])
    if variant == "export":
        export(what, precision, folder)
        return
    torch.set_num_threads(int(rest[0]))
    torch.manual_seed(0)
    steps(variant, what, precision, folder)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
