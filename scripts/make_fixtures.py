#!/usr/bin/env python3
"""Writes tests/fixtures/{optimizer_*,schedule,model_layers}.safetensors from torch itself.

Needs torch and safetensors; run it by hand when a fixture should change, and commit the result.
"""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
STEPS = 20
SHAPES = {
    "linear.weight": (4, 5),
    "linear.bias": (4,),
    "conv.weight": (3, 2, 3, 3),
    "norm.weight": (6,),
}
LATE = "linear.bias"  # in the *_late cases it has a gradient only in these steps
LATE_STEPS = {3, 4, 6, 7, 8, 12, 15, 16, 17, 18, 19}


def learning_rate(step):
    return 0.02 * (1 + 0.5 * math.sin(step))


def run(make_optimizer, initial, gradients, late=False, max_norm=None):
    """Parameters after each step, stacked along dim 0, and the norms before clipping."""
    parameters = {name: nn.Parameter(value.clone()) for name, value in initial.items()}
    optimizer = make_optimizer(parameters)
    scales = [group["lr"] for group in optimizer.param_groups]  # relative to 1
    history = {name: [] for name in parameters}
    norms = []
    for step in range(STEPS):
        for group, scale in zip(optimizer.param_groups, scales):
            group["lr"] = learning_rate(step) * scale
        for name, parameter in parameters.items():
            absent = late and name == LATE and step not in LATE_STEPS
            parameter.grad = None if absent else gradients[name][step].clone()
        if max_norm is not None:
            norms.append(nn.utils.clip_grad_norm_(parameters.values(), max_norm))
        optimizer.step()
        for name, parameter in parameters.items():
            history[name].append(parameter.detach().clone())
    result = {name: torch.stack(values) for name, values in history.items()}
    if norms:
        result["norms"] = torch.stack(norms)
    return result


def grouped(kind, decays, scales, **options):
    def make(parameters):
        groups = [
            {"params": [p], "weight_decay": decays[name], "lr": scales[name]}
            for name, p in parameters.items()
        ]
        return kind(groups, lr=1.0, **options)

    return make


def plain(kind, weight_decay, **options):
    def make(parameters):
        return kind(parameters.values(), lr=1.0, weight_decay=weight_decay, **options)

    return make


def write_optimizers():
    generator = torch.Generator().manual_seed(7)
    initial = {n: torch.randn(s, generator=generator) for n, s in SHAPES.items()}
    gradients = {n: torch.randn((STEPS, *s), generator=generator) for n, s in SHAPES.items()}
    one_dim = {n: len(s) == 1 for n, s in SHAPES.items()}
    ones = {n: 1.0 for n in SHAPES}
    adamw, sgd = torch.optim.AdamW, torch.optim.SGD
    # The C++ side of each case stands in tanren/optimizer/optimizer_test.cpp.
    cases = {
        "adamw": dict(make_optimizer=plain(adamw, 0.01)),
        "adamw_betas": dict(make_optimizer=plain(adamw, 0.1, betas=(0.8, 0.95), eps=1e-6)),
        "adamw_no_decay": dict(
            make_optimizer=grouped(adamw, {n: 0.0 if one_dim[n] else 0.1 for n in SHAPES}, ones)
        ),
        "adamw_groups": dict(
            make_optimizer=grouped(
                adamw,
                {"linear.weight": 0.01, "linear.bias": 0.0, "conv.weight": 0.3, "norm.weight": 0.01},
                {"linear.weight": 1.0, "linear.bias": 0.1, "conv.weight": 1.0, "norm.weight": 1.0},
            )
        ),
        "adamw_late": dict(make_optimizer=plain(adamw, 0.01), late=True),
        "adamw_clipped": dict(make_optimizer=plain(adamw, 0.01), max_norm=10.0),
        "sgd": dict(make_optimizer=plain(sgd, 0.05)),
        "sgd_momentum": dict(make_optimizer=plain(sgd, 0.05, momentum=0.9)),
        "sgd_dampening": dict(make_optimizer=plain(sgd, 0.0, momentum=0.9, dampening=0.3)),
        "sgd_nesterov": dict(make_optimizer=plain(sgd, 0.01, momentum=0.8, nesterov=True)),
        "sgd_late": dict(
            make_optimizer=plain(sgd, 0.01, momentum=0.9, dampening=0.3), late=True
        ),
        "sgd_clipped": dict(make_optimizer=plain(sgd, 0.0, momentum=0.9), max_norm=8.0),
    }
    late = torch.tensor([step in LATE_STEPS for step in range(STEPS)], dtype=torch.int64)
    inputs = {f"initial/{n}": v for n, v in initial.items()}
    inputs |= {f"gradient/{n}": v for n, v in gradients.items()}
    inputs["late"] = late
    inputs["learning_rates"] = torch.tensor(
        [learning_rate(step) for step in range(STEPS)], dtype=torch.float64
    )
    save_file(inputs, FOLDER / "optimizer_inputs.safetensors")
    expected = {}
    for case, arguments in cases.items():
        for name, value in run(initial=initial, gradients=gradients, **arguments).items():
            expected[f"{case}/{name}"] = value
    save_file(expected, FOLDER / "optimizer_expected.safetensors")


# The factors of transformers/optimization.py (get_constant_schedule_with_warmup,
# get_linear_schedule_with_warmup, get_cosine_schedule_with_warmup), word for word.
def constant_factor(step, warmup, total):
    return float(step) / float(max(1.0, warmup)) if step < warmup else 1.0


def linear_factor(step, warmup, total):
    if step < warmup:
        return float(step) / float(max(1, warmup))
    return max(0.0, float(total - step) / float(max(1, total - warmup)))


def cosine_factor(step, warmup, total):
    if step < warmup:
        return float(step) / float(max(1, warmup))
    progress = float(step - warmup) / float(max(1, total - warmup))
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress)))


def write_schedules():
    total, result = 40, {}
    for kind in (constant_factor, linear_factor, cosine_factor):
        for warmup in (0, 1, 8):
            optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
            schedule = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: kind(step, warmup, total)
            )
            rates = []
            for _ in range(total + 1):
                rates.append(schedule.get_last_lr()[0])
                optimizer.step()
                schedule.step()
            name = f"{kind.__name__.removesuffix('_factor')}/{warmup}"
            result[name] = torch.tensor(rates, dtype=torch.float64)
    save_file(result, FOLDER / "schedule.safetensors")


def write_layers():
    """Initial values under a seed, and outputs: the layers of tanren/model against torch.nn."""
    result = {}
    torch.manual_seed(11)
    linear = nn.Linear(6, 4)
    conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
    result |= {f"linear.{n}": p.detach() for n, p in linear.named_parameters()}
    result |= {f"conv.{n}": p.detach() for n, p in conv.named_parameters()}
    generator = torch.Generator().manual_seed(12)
    rows = torch.randn(5, 6, generator=generator)
    images = torch.randn(2, 3, 7, 5, generator=generator)
    maps = torch.randn(3, 4, 3, 3, generator=generator)
    result |= {"rows": rows, "images": images, "maps": maps}
    result["linear_out"] = linear(rows).detach()
    result["conv_out"] = conv(images).detach()
    group = nn.GroupNorm(2, 4)
    batch = nn.BatchNorm2d(4)
    for norm in (group, batch):
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 1.5, 4))
            norm.bias.copy_(torch.linspace(-1, 1, 4))
    result["group_out"] = group(maps).detach()
    result["batch_out"] = batch(maps).detach()
    result["running_mean"] = batch.running_mean.clone()
    result["running_var"] = batch.running_var.clone()
    batch.eval()
    result["batch_eval_out"] = batch(maps).detach()
    save_file({n: t.contiguous() for n, t in result.items()}, FOLDER / "model_layers.safetensors")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_optimizers()
    write_schedules()
    write_layers()
    for path in FOLDER.glob("*.safetensors"):
        path.chmod(0o644)
