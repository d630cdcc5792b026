#!/usr/bin/env python3
"""One of two stages of torch.distributed.pipelining over Gloo. Runs an update of GPT-2 124M or ResNet-50
for each line read and prints its seconds and loss. The models are plain torch with the names of
transformers and torchvision, without dropout. Driven by pipeline_peer_bench.

    pipeline_torch.py RANK PORT gpt2|resnet50 bf16|fp32 gpipe|1f1b default|tuned MICROBATCHES CUT START

CUT: the first block of the second stage (transformer.h.6, layer3.0). tuned: fused AdamW, and images
channels-last within a stage. START: safetensors with the weights and, as batch.*, the global batch.
pipelining knows no tied weights: both stages hold the embedding and sum its gradient here.
"""

import sys
import time

import safetensors.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

STAGES = 2


class Projection(nn.Module):
    """A linear layer whose weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Projection(width, 3 * width)
        self.c_proj = Projection(width, width)

    def forward(self, x):
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Projection(width, 4 * width)
        self.c_proj = Projection(4 * width, width)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Embeddings(nn.Module):
    def __init__(self, tokens, positions, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(positions, width)

    def forward(self, ids):
        return self.wte(ids) + self.wpe.weight[: ids.shape[1]]


def gpt2(given):
    """Blocks in order: name, prefix of the names of its weights, how it is made."""
    tokens, width = given["transformer.wte.weight"].shape
    positions = given["transformer.wpe.weight"].shape[0]
    layers = sum(name.endswith(".ln_1.weight") for name in given)
    blocks = [("transformer.wte", "transformer.", lambda: Embeddings(tokens, positions, width))]
    for i in range(layers):
        name = f"transformer.h.{i}"
        blocks.append((name, name + ".", lambda: Layer(width, heads=width // 64)))
    blocks.append(("transformer.ln_f", "transformer.ln_f.", lambda: nn.LayerNorm(width)))
    blocks.append(("lm_head", "transformer.wte.", lambda: nn.Linear(width, tokens, bias=False)))
    return blocks


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)

    def forward(self, x):
        return functional.max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, stride=2, padding=1)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu_()
        y = self.bn2(self.conv2(y)).relu_()
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return y.relu_()


class Classifier(nn.Linear):
    def forward(self, x):
        return super().forward(functional.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet50(given):
    blocks, inputs = [("conv1", "", Stem)], 64
    for part, count in enumerate((3, 4, 6, 3)):
        width = 64 << part
        for i in range(count):
            name, stride = f"layer{part + 1}.{i}", 2 if part > 0 and i == 0 else 1
            shape = (inputs, width, stride)
            blocks.append((name, name + ".", lambda shape=shape: Bottleneck(*shape)))
            inputs = 4 * width
    classes = given["fc.weight"].shape[0]
    return [*blocks, ("fc", "fc.", lambda: Classifier(inputs, classes))]


class Stage(nn.Module):
    """Some blocks in a row, with the weights that START has for them."""

    def __init__(self, blocks, given, autocast, layout):
        super().__init__()
        self.blocks, self.autocast, self.layout = nn.ModuleList(), autocast, layout
        for _, prefix, make in blocks:
            block = make()
            own = {key: given[prefix + key] for key in block.state_dict() if prefix + key in given}
            missing, _ = block.load_state_dict(own, strict=False)
            assert all(key.endswith("num_batches_tracked") for key in missing), (prefix, missing)
            self.blocks.append(block)
        self.to(memory_format=layout)

    def forward(self, x):
        if x.dim() == 4:
            x = x.contiguous(memory_format=self.layout)
        with self.autocast():
            for block in self.blocks:
                x = block(x)
        return x.contiguous()  # Gloo sends no other


def stage_of(blocks, cut, rank):
    first = [name for name, _, _ in blocks].index(cut)
    return blocks[first:] if rank else blocks[:first]


def main():
    rank, port, pieces = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[7])
    model, mode, order, variant = sys.argv[3:7]
    cut, start = sys.argv[8:10]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=STAGES)
    given = safetensors.torch.load_file(start)
    inputs, labels = given.pop("batch.inputs"), given.pop("batch.labels")
    blocks = {"gpt2": gpt2, "resnet50": resnet50}[model](given)
    tuned, is_last = variant == "tuned", rank == STAGES - 1

    def autocast():
        return torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16")

    def loss_of(output, target):
        with autocast():
            return functional.cross_entropy(output.flatten(0, -2), target.flatten())

    layout = torch.channels_last if tuned and model == "resnet50" else torch.contiguous_format
    module = Stage(stage_of(blocks, cut, rank), given, autocast, layout).train()
    del given
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[order]
    stage = PipelineStage(module, rank, STAGES, torch.device("cpu"))
    schedule = kind(stage, pieces, loss_fn=loss_of)  # divides gradients by the microbatches
    parameters = list(module.parameters())
    tied = []
    if model == "gpt2":
        tied = [module.blocks[-1].weight if is_last else module.blocks[0].wte.weight]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, weight_decay=0.01, fused=True if tuned else None)

    def clip():
        # The norm of the whole model; the first stage speaks for what both hold.
        others = [p.grad for p in parameters if not (is_last and any(p is own for own in tied))]
        norm = torch.stack(torch._foreach_norm(others)).norm()
        square = norm * norm
        dist.all_reduce(square)
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, square.sqrt())

    def update():
        losses = []
        if is_last:
            schedule.step(target=labels, losses=losses, return_outputs=False)
        else:
            schedule.step(inputs, return_outputs=False)
        for parameter in tied:
            dist.all_reduce(parameter.grad)
        clip()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return sum(loss.item() for loss in losses) / pieces

    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = update()
        print(time.perf_counter() - begin, f"{loss:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
