#!/usr/bin/env python3
"""One step of GPT-2 124M in PyTorch eager for each line read; answers with its seconds.

8 × 256 tokens as 4 microbatches of 2, dropout 0.1, autocast in bf16 or plain fp32, fused AdamW,
gradients clipped to norm 1. Driven by gpt2_peer_bench.

    gpt2_torch.py [bf16|fp32] [threads]
"""

import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else "bf16"
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    inputs = torch.randint(50257, (8, 256))
    labels = torch.randint(50257, (8, 256))

    def step():
        # As a recent training script does it: one autocast a microbatch, the loss divided by their
        # number, gradients set to none.
        for begin in range(0, 8, 2):
            with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16"):
                logits = model(inputs[begin : begin + 2]).logits
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels[begin : begin + 2].flatten()
                )
            (loss / 4).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
