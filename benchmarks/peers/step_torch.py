#!/usr/bin/env python3
"""Runs one training step of a known model in PyTorch eager for each line read and prints its
seconds and loss. Models of transformers (its default attention) and torchvision, dropout 0.1 if the
model has dropout, autocast in bf16 or plain fp32, AdamW, gradients clipped to norm 1. Driven by
step_peer_bench.

    step_torch.py bert|gpt2|gpt2_micro|resnet50 bf16|fp32 THREADS VARIANT START [DEVICE] [DROPOUT]

VARIANT: default, fused (AdamW), channels_last (and fused), compile (and fused).
START: safetensors with the weights and, as batch.*, the batch.
"""

import sys
import time

import safetensors.torch
import torch
from torch.nn.functional import cross_entropy


def model_of(name, dropout):
    if name == "resnet50":
        import torchvision

        return torchvision.models.resnet50(), lambda model, inputs: model(inputs)
    import transformers

    if name == "bert":
        rates = {} if dropout is None else {
            "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        model = transformers.BertForSequenceClassification(
            transformers.BertConfig(num_labels=2, **rates))
    else:
        rates = {} if dropout is None else {
            "resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**rates))
    return model, lambda model, inputs: model(inputs).logits.flatten(0, -2)


def main():
    name, mode, threads, variant, start = sys.argv[1:6]
    device = sys.argv[6] if len(sys.argv) > 6 else "cpu"
    dropout = float(sys.argv[7]) if len(sys.argv) > 7 and sys.argv[7] else None
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model, run = model_of(name, dropout)
    given = safetensors.torch.load_file(start)
    batch = {key[6:]: given.pop(key) for key in list(given) if key.startswith("batch.")}
    inputs, labels = batch["inputs"], batch["labels"]
    missing, unexpected = model.load_state_dict(given, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model = model.to(device)
    inputs, labels = inputs.to(device), labels.to(device)
    if variant == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-5, weight_decay=0.01, 
        fused=True if variant != "default" and not (variant == "channels_last" and device == "cpu")
        else None)
    forward = torch.compile(model) if variant == "compile" else model
    pieces = 4 if name == "gpt2_micro" else 1

    def step():
        # As in a recent training script: one autocast per microbatch, the loss divided by the
        # number of microbatches, gradients set to none.
        total = 0
        for some_inputs, some_labels in zip(inputs.chunk(pieces), labels.chunk(pieces)):
            with torch.autocast(device, torch.bfloat16, enabled=mode == "bf16"):
                loss = cross_entropy(run(forward, some_inputs), some_labels.flatten()) / pieces
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device != "cpu":
            torch.cuda.synchronize()
        return total

    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = step()
        print(time.perf_counter() - begin, f"{loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
