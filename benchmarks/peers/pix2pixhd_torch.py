#!/usr/bin/env python3
"""Runs one training step of Pix2PixHD in PyTorch eager for each line read and prints its seconds and
the generator's loss. The networks in torch.nn's layers and the step as NVIDIA's train.py has it:
made pictures pass the discriminators twice, backward of the generator's loss, its Adam, then the
same of the discriminators'. Driven by step_peer_bench.

    pix2pixhd_torch.py pix2pixhd bf16|fp32 THREADS default|fused|channels_last START [DEVICE]

START: safetensors with the weights and, as batch.*, the batch.
"""

import sys
import time

import safetensors.torch
import torch
from torch import nn

CHANNELS, LEVELS, BLOCKS, LAYERS, SCALES = 64, 4, 9, 3, 2


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv_block = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(True),
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))

    def forward(self, x):
        return x + self.conv_block(x)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        width = CHANNELS
        parts = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(True)]
        for _ in range(LEVELS):
            parts += [nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.ReLU(True)]
            width *= 2
        parts += [Residual(width) for _ in range(BLOCKS)]
        for _ in range(LEVELS):
            parts += [nn.ConvTranspose2d(width, width // 2, 3, 2, 1, output_padding=1)]
            width //= 2
            parts += [nn.InstanceNorm2d(width), nn.ReLU(True)]
        parts += [nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh()]
        self.model = nn.Sequential(*parts)

    def forward(self, x):
        return self.model(x)


class Discriminators(nn.Module):
    def __init__(self):
        super().__init__()
        for scale in range(SCALES):
            into, out = 6, CHANNELS
            for layer in range(LAYERS + 2):
                last = layer == LAYERS + 1
                parts = [nn.Conv2d(into, 1 if last else out, 4, 2 if layer < LAYERS else 1, 2)]
                if 0 < layer and not last:
                    parts.append(nn.InstanceNorm2d(out))
                if not last:
                    parts.append(nn.LeakyReLU(0.2, True))
                setattr(self, f"scale{scale}_layer{layer}", nn.Sequential(*parts))
                into, out = out, min(2 * out, 512)
        self.halve = nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False)

    def forward(self, x):
        result = []
        for scale in reversed(range(SCALES)):
            features, y = [], x
            for layer in range(LAYERS + 2):
                y = getattr(self, f"scale{scale}_layer{layer}")(y)
                features.append(y)
            result.append(features)
            x = self.halve(x)
        return result


def towards(result, target):
    return sum(nn.functional.mse_loss(f[-1], torch.full_like(f[-1], target)) for f in result)


def main():
    _, mode, threads, variant, start = sys.argv[1:6]
    device = sys.argv[6] if len(sys.argv) > 6 else "cpu"
    torch.set_num_threads(int(threads))
    generator, discriminators = Generator(), Discriminators()
    given = safetensors.torch.load_file(start)
    for name, module in (("generator.", generator), ("discriminator.", discriminators)):
        module.load_state_dict({k[len(name):]: v for k, v in given.items() if k.startswith(name)})
    generator.to(device)
    discriminators.to(device)
    inputs, real = given["batch.inputs"].to(device), given["batch.labels"].to(device)
    if variant == "channels_last":
        generator.to(memory_format=torch.channels_last)
        discriminators.to(memory_format=torch.channels_last)
        inputs, real = (x.to(memory_format=torch.channels_last) for x in (inputs, real))
    fused = True if variant == "fused" else None
    adams = [
        torch.optim.Adam(module.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=fused)
        for module in (generator, discriminators)
    ]

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=mode == "bf16"):
            made = generator(inputs)
            detached = discriminators(torch.cat((inputs, made.detach()), 1))
            of_real = discriminators(torch.cat((inputs, real), 1))
            of_made = discriminators(torch.cat((inputs, made), 1))
            feature = 0
            for scale in range(SCALES):
                for layer in range(LAYERS + 1):
                    difference = nn.functional.l1_loss(of_made[scale][layer], of_real[scale][layer].detach())
                    feature = feature + 4 / (LAYERS + 1) / SCALES * difference
            loss_g = towards(of_made, 1.0) + 10 * feature
            loss_d = 0.5 * (towards(of_real, 1.0) + towards(detached, 0.0))
        for adam, loss in zip(adams, (loss_g, loss_d)):
            adam.zero_grad()
            loss.backward()
            adam.step()
        loss = loss_g.item()
        if device != "cpu":
            torch.cuda.synchronize()
        return loss

    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = step()
        print(time.perf_counter() - begin, f"{loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
