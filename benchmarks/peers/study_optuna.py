#!/usr/bin/env python3
"""Searches for the minimum of a test function with Optuna's TPESampler. Driven by study_bench.

    study_optuna.py branin|hartmann6|mixed TRIALS POINT

The first line read is answered by the function's value at POINT, JSON; each line after that by the
best value of a study of TRIALS trials, whose sampler has the next seed, from 0 on. The functions
are those of tests/support/search_functions.h.
"""

import json
import math
import sys

import optuna

HARTMANN_WEIGHTS = [1, 1.2, 3, 3.2]
HARTMANN_SCALES = [
    [10, 3, 17, 3.5, 1.7, 8],
    [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8],
    [17, 8, 0.05, 10, 0.1, 14],
]
HARTMANN_CENTRES = [
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
]


def branin(trial):
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    parabola = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return parabola**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887


def hartmann6(trial):
    x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(6)]
    total = 0
    for weight, scales, centres in zip(HARTMANN_WEIGHTS, HARTMANN_SCALES, HARTMANN_CENTRES):
        total += weight * math.exp(-sum(s * (v - c) ** 2 for s, v, c in zip(scales, x, centres)))
    return 3.32237 - total


def mixed(trial):
    rate = trial.suggest_float("rate", 1e-5, 1, log=True)
    layers = trial.suggest_int("layers", 1, 8)
    kind = trial.suggest_categorical("kind", ["adamw", "sgd", "lion"])
    momentum = trial.suggest_float("momentum", 0.5, 0.99) - 0.9 if kind == "sgd" else 0
    best, extra = {"adamw": (-3, 0.3), "sgd": (-1, 0), "lion": (-4, 0.6)}[kind]
    return extra + 0.5 * (math.log10(rate) - best) ** 2 + 0.1 * (layers - 5) ** 2 + 8 * momentum**2


def main():
    function, trials, point = globals()[sys.argv[1]], int(sys.argv[2]), json.loads(sys.argv[3])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print("ready", flush=True)
    for seed, _ in enumerate(sys.stdin, start=-1):
        if seed < 0:
            print(repr(function(optuna.trial.FixedTrial(point))), flush=True)
            continue
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(function, n_trials=trials)
        print(repr(study.best_value), flush=True)


if __name__ == "__main__":
    main()
