#!/usr/bin/env python3
"""One rank of PyTorch's DistributedDataParallel over Gloo. Runs a training step of transformers'
GPT-2 for each line read and prints its seconds and loss. Driven by ranks_peer_bench.

    ddp_torch.py RANK WORLD PORT ACCUMULATION bf16|fp32 default|tuned START

All but the last of ACCUMULATION microsteps are inside no_sync(). tuned: gradients as bucket views
and fused AdamW. START: safetensors with the weights and, as batch.*, the global batch; this rank
takes its share.
"""

import sys
import time
from contextlib import nullcontext

import safetensors.torch
import torch
import torch.distributed as dist
import transformers
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def main():
    rank, world, port, pieces = (int(word) for word in sys.argv[1:5])
    mode, variant, start = sys.argv[5:8]
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    given = safetensors.torch.load_file(start)
    batch = {key[6:]: given.pop(key).chunk(world)[rank] for key in list(given) if key.startswith("batch.")}
    missing, unexpected = model.load_state_dict(given, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    del given
    model.train()
    tuned = variant == "tuned"
    ranks = DistributedDataParallel(model, gradient_as_bucket_view=tuned)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-5, weight_decay=0.01, fused=True if tuned else None
    )
    inputs, labels = batch["inputs"].chunk(pieces), batch["labels"].chunk(pieces)

    def step():
        total = 0
        for i in range(pieces):
            is_last = i + 1 == pieces
            with nullcontext() if is_last else ranks.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16"):
                    logits = ranks(input_ids=inputs[i]).logits
                    loss = cross_entropy(logits.flatten(0, -2), labels[i].flatten()) / pieces
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = step()
        print(time.perf_counter() - begin, f"{loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
