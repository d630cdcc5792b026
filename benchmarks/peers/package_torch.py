#!/usr/bin/env python3
"""BERT in PyTorch, for package_bench: sequence classification, 8 × 128 tokens, dropout 0.1, fused AdamW.

    package_torch.py export LAYERS bf16|fp32 FOLDER                  writes FOLDER/bert.package and FOLDER/batch.safetensors
    package_torch.py eager|compile LAYERS bf16|fp32 THREADS FOLDER   one training step for each line read

A step starts from the package's weights, on its batch. Each answer is the step's seconds, its loss, and the most
memory (kB) that this process has had. "ready" is printed before the first step, so that its time has the compiler's
in it.
"""

import os
import pathlib
import resource
import sys
import time

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

SAMPLES, TOKENS = 8, 128


def model_of(layers):
    import transformers

    return transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2, num_hidden_layers=layers))


def summed(model, batch):
    scores = model(batch["inputs"], attention_mask=batch["attention_mask"]).logits
    return scores, cross_entropy(scores, batch["labels"], reduction="sum")


def export(layers, precision, folder):
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
    import tanren_export as te

    torch.manual_seed(0)
    model = model_of(layers)
    batch = {
        "inputs": torch.randint(model.config.vocab_size, (SAMPLES, TOKENS)),
        "attention_mask": torch.ones(SAMPLES, TOKENS, dtype=torch.int64),
        "labels": torch.randint(2, (SAMPLES,)),
    }
    save_file(batch, folder / "batch.safetensors")

    def loss(model, batch):
        scores, total = summed(model, batch)
        return te.Terms(scores, cross_entropy=te.Sum(total))

    tokens = {"tokens": ["inputs.1", "attention_mask.1"]}
    te.export(model, loss, batch, folder / "bert.package", precision=precision, dynamic=tokens, metrics="classes")


def steps(variant, layers, precision, folder):
    model = model_of(layers)
    model.load_state_dict(load_file(folder / "bert.package/weights.safetensors"))
    batch = load_file(folder / "batch.safetensors")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    forward = torch.compile(summed) if variant == "compile" else summed
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(model, batch)[1] / SAMPLES
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        told = loss.item()
        seconds = time.perf_counter() - begin
        print(seconds, f"{told:.4f}", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)


def main():
    what, layers, precision, *rest = sys.argv[1:]
    folder = pathlib.Path(rest[-1])
    if what == "export":
        export(int(layers), precision, folder)
        return
    torch.set_num_threads(int(rest[0]))
    torch.manual_seed(0)
    steps(what, int(layers), precision, folder)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
