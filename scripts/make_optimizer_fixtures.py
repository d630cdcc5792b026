#!/usr/bin/env python3
"""Writes tests/fixtures/{optimizer_kinds,schedule_kinds}.safetensors: what torch.optim,
torch.optim.lr_scheduler, transformers and lion-pytorch make of the inputs of make_fixtures.py.

Needs torch, transformers, lion-pytorch and safetensors; run it by hand when a fixture should
change, and commit the result.
"""

from pathlib import Path

import torch
import torch.optim._muon as torch_muon
import transformers
from lion_pytorch import Lion
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import lr_scheduler

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
LATE = "linear.bias"


class Muon:
    """torch.optim.Muon for the matrices (kernels as rows), torch.optim.AdamW for the rest."""

    def __init__(self, named, narrow=False, weight_decay=0.1, **options):
        self.narrow = narrow
        self.matrices = {n: p for n, p in named.items() if p.dim() > 1}
        self.flat = {n: nn.Parameter(p.detach().reshape(len(p), -1)) for n, p in self.matrices.items()}
        rest = [p for p in named.values() if p.dim() < 2]
        self.muon = torch.optim.Muon(self.flat.values(), lr=1.0, weight_decay=weight_decay, **options)
        self.adamw = torch.optim.AdamW(rest, lr=1.0, weight_decay=weight_decay)
        self.param_groups = self.muon.param_groups + self.adamw.param_groups

    def step(self):
        for name, parameter in self.matrices.items():
            self.flat[name].grad = parameter.grad.reshape(len(parameter), -1)
        wide = torch_muon._zeropower_via_newtonschulz
        if not self.narrow:
            torch_muon._zeropower_via_newtonschulz = wide_orthogonalised
        self.muon.step()
        torch_muon._zeropower_via_newtonschulz = wide
        self.adamw.step()
        with torch.no_grad():
            for name, parameter in self.matrices.items():
                parameter.copy_(self.flat[name].view_as(parameter))


def wide_orthogonalised(grad, coefficients, steps, eps):
    """Newton-Schulz of torch.optim.Muon, in grad's dtype instead of bf16."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


def history(make_optimizer, inputs, late):
    """Parameters after each step, stacked along dim 0."""
    start = {n.removeprefix("initial/"): v for n, v in inputs.items() if n.startswith("initial/")}
    parameters = {name: nn.Parameter(value.clone()) for name, value in start.items()}
    optimizer = make_optimizer(parameters)
    values = {name: [] for name in parameters}
    for step, rate in enumerate(inputs["learning_rates"].tolist()):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, parameter in parameters.items():
            absent = late and name == LATE and not inputs["late"][step]
            parameter.grad = None if absent else inputs[f"gradient/{name}"][step].clone()
        optimizer.step()
        for name, parameter in parameters.items():
            values[name].append(parameter.detach().clone())
    return {name: torch.stack(steps) for name, steps in values.items()}


def of(kind, **options):
    return lambda parameters: kind(parameters.values(), lr=1.0, **options)


def write_optimizers():
    optim = torch.optim
    # The C++ side of each case stands in tanren/optimizer/optimizer_kinds_test.cpp.
    cases = {
        "adam": of(optim.Adam),
        "adam_decay": of(optim.Adam, weight_decay=0.05, betas=(0.8, 0.95), eps=1e-6),
        "adam_amsgrad": of(optim.Adam, weight_decay=0.02, betas=(0.9, 0.5), amsgrad=True),
        "adam_late": of(optim.Adam),
        "adamw_amsgrad": of(optim.AdamW, weight_decay=0.1, betas=(0.9, 0.5), amsgrad=True),
        "nadam": of(optim.NAdam),
        "nadam_decay": of(optim.NAdam, weight_decay=0.05, betas=(0.8, 0.95), momentum_decay=0.1),
        "nadam_decoupled": of(optim.NAdam, weight_decay=0.1, decoupled_weight_decay=True, eps=1e-6),
        "nadam_late": of(optim.NAdam),
        "radam": of(optim.RAdam),
        "radam_decay": of(optim.RAdam, weight_decay=0.05, betas=(0.8, 0.9)),
        "radam_decoupled": of(
            optim.RAdam, weight_decay=0.1, decoupled_weight_decay=True, eps=1e-6, betas=(0.7, 0.99)
        ),
        "radam_late": of(optim.RAdam, betas=(0.9, 0.9)),
        "rmsprop": of(optim.RMSprop),
        "rmsprop_momentum": of(optim.RMSprop, momentum=0.9, alpha=0.9, eps=1e-6),
        "rmsprop_centered": of(optim.RMSprop, centered=True, weight_decay=0.05, alpha=0.8),
        "rmsprop_all": of(optim.RMSprop, centered=True, momentum=0.5, weight_decay=0.01),
        "rmsprop_late": of(optim.RMSprop, momentum=0.9, centered=True),
        "adagrad": of(optim.Adagrad),
        "adagrad_decay": of(
            optim.Adagrad, lr_decay=0.1, weight_decay=0.03, initial_accumulator_value=0.5, eps=1e-6
        ),
        "adagrad_late": of(optim.Adagrad, lr_decay=0.05),
        "adafactor": of(optim.Adafactor),
        "adafactor_options": of(
            optim.Adafactor, beta2_decay=-0.5, eps=(None, 2.0), d=1.5, weight_decay=0.1
        ),
        "adafactor_late": of(optim.Adafactor),
        "adafactor_fixed": of(
            transformers.Adafactor, scale_parameter=False, relative_step=False, weight_decay=0.05
        ),
        "lion": of(Lion, betas=(0.9, 0.99), weight_decay=0.01),
        "lion_options": of(Lion, betas=(0.5, 0.9), weight_decay=0.2),
        "muon": lambda parameters: Muon(parameters, adjust_lr_fn="match_rms_adamw"),
        "muon_original": lambda parameters: Muon(
            parameters, adjust_lr_fn="original", nesterov=False, momentum=0.8, ns_steps=3,
            weight_decay=0.0,
        ),
        "muon_narrow": lambda parameters: Muon(
            parameters, adjust_lr_fn="match_rms_adamw", narrow=True
        ),
    }
    inputs = load_file(FOLDER / "optimizer_inputs.safetensors")
    expected = {}
    for case, make in cases.items():
        for name, value in history(make, inputs, case.endswith("_late")).items():
            expected[f"{case}/{name}"] = value
    save_file(expected, FOLDER / "optimizer_kinds.safetensors")


def rates_of(make_schedule, steps, peak=0.3):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = make_schedule(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return torch.tensor(rates, dtype=torch.float64)


def plateau_rates(metrics, **options):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    rates = []
    for metric in metrics:
        schedule.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return torch.tensor(rates, dtype=torch.float64)


def write_schedules():
    total = 40
    t = transformers
    # The C++ side of each case stands in tanren/optimizer/schedule_test.cpp, of the plateaus in
    # plateau_test.cpp.
    cases = {
        "restarts": lambda o: t.get_cosine_with_hard_restarts_schedule_with_warmup(
            o, 0, total, num_cycles=4
        ),
        "restarts_warm": lambda o: t.get_cosine_with_hard_restarts_schedule_with_warmup(
            o, 7, total, num_cycles=3
        ),
        "restarts_growing": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(
            o, 6, T_mult=2, eta_min=0.03
        ),
        "polynomial": lambda o: t.get_polynomial_decay_schedule_with_warmup(
            o, 5, total, lr_end=0.03, power=2.0
        ),
        "inverse_sqrt": lambda o: t.get_inverse_sqrt_schedule(o, 8),
        "inverse_sqrt_timescale": lambda o: t.get_inverse_sqrt_schedule(o, 0, timescale=16),
        "step": lambda o: lr_scheduler.StepLR(o, 7, gamma=0.5),
        "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [5, 11, 30], gamma=0.3),
        "one_cycle": lambda o: lr_scheduler.OneCycleLR(
            o, 0.3, total_steps=total, cycle_momentum=False
        ),
        "one_cycle_linear": lambda o: lr_scheduler.OneCycleLR(
            o, 0.3, total_steps=total, cycle_momentum=False, pct_start=0.55, div_factor=10,
            final_div_factor=50, anneal_strategy="linear",
        ),
        "wsd_cosine": lambda o: t.get_wsd_schedule(
            o, 0, 12, num_training_steps=total, min_lr_ratio=0.1
        ),
        "wsd_linear": lambda o: t.get_wsd_schedule(
            o, 6, 20, num_training_steps=total, decay_type="linear"
        ),
        "wsd_sqrt": lambda o: t.get_wsd_schedule(
            o, 0, 12, num_training_steps=total, min_lr_ratio=0.2, decay_type="1-sqrt"
        ),
    }
    result = {}
    for name, make in cases.items():
        # torch's one-cycle refuses a step past the last.
        steps = total - 1 if name.startswith("one_cycle") else total
        result[name] = rates_of(make, steps)
    falling = [1.0, 0.8, 0.8, 0.79999, 0.81, 0.7, 0.75, 0.71, 0.72, 0.69, 0.7, 0.7, 0.7, 0.7, 0.6]
    rising = [0.1, 0.3, 0.32, 0.33, 0.34, 0.4, 0.41, 0.42, 0.43, 0.44, 0.45, 0.5, 0.5, 0.5, 0.5]
    flat = [0.5] * 15
    plateaus = {
        "min_rel": (falling, dict(factor=0.5, patience=1)),
        "max_abs": (
            rising,
            dict(mode="max", factor=0.5, patience=2, threshold=0.05, threshold_mode="abs", cooldown=2),
        ),
        "floored": (flat, dict(factor=0.1, patience=0, min_lr=0.006)),
    }
    for name, (metrics, options) in plateaus.items():
        result[f"plateau/{name}/metrics"] = torch.tensor(metrics, dtype=torch.float64)
        result[f"plateau/{name}/rates"] = plateau_rates(metrics, **options)
    save_file(result, FOLDER / "schedule_kinds.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_optimizers()
    write_schedules()
    for name in ("optimizer_kinds", "schedule_kinds"):
        (FOLDER / f"{name}.safetensors").chmod(0o644)
