#!/usr/bin/env python3
"""Writes tests/fixtures/metrics.safetensors: predictions and what scikit-learn says of them.

Needs scikit-learn, torch and safetensors; run it by hand when the fixture should change.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn import metrics

FILE = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "metrics.safetensors"


def averaged(labels, predicted, averages):
    values = []
    for function in (metrics.precision_score, metrics.recall_score, metrics.f1_score):
        for average in averages:
            values.append(function(labels, predicted, average=average, zero_division=0))
    return values


def classes(random, samples, count, kept):
    """Scores of `count` classes of which only the first `kept` occur as targets."""
    labels = random.integers(0, kept, samples)
    scores = random.normal(size=(samples, count)).astype(np.float32)
    scores[np.arange(samples), labels] += 1
    scores = np.round(scores * 8) / 8  # ties, within a row and over rows
    predicted = scores.argmax(1)
    return labels, scores, predicted


def main():
    random = np.random.default_rng(5)
    out = {}

    labels, scores, predicted = classes(random, 300, 6, 6)
    shares = torch.tensor(scores, dtype=torch.float64).softmax(1).numpy()
    out["many.scores"], out["many.labels"] = scores, labels
    out["many.averaged"] = averaged(labels, predicted, ("macro", "micro"))
    out["many.auroc"] = metrics.roc_auc_score(labels, shares, multi_class="ovr", average="macro")
    out["many.auroc_per_class"] = metrics.roc_auc_score(
        labels, shares, multi_class="ovr", average=None
    )
    out["many.confusion_matrix"] = metrics.confusion_matrix(labels, predicted)
    out["many.accuracy"] = metrics.accuracy_score(labels, predicted)
    untied = scores + np.linspace(0, -1e-3, 6, dtype=np.float32)  # ties: the lower class first
    out["many.top2"] = metrics.top_k_accuracy_score(labels, untied, k=2)

    labels, scores, predicted = classes(random, 40, 9, 5)  # classes that nobody has or predicts
    scores[:, 7:] = -9
    predicted = scores.argmax(1)
    out["rare.scores"], out["rare.labels"] = scores, labels
    out["rare.averaged"] = averaged(labels, predicted, ("macro", "micro"))

    labels, scores, predicted = classes(random, 250, 2, 2)
    out["two.scores"], out["two.labels"] = scores, labels
    out["two.averaged"] = averaged(labels, predicted, ("binary", "macro"))
    out["two.auroc"] = metrics.roc_auc_score(labels, scores[:, 1] - scores[:, 0])

    targets = random.normal(size=(120, 3)) * [1, 10, 0.1] + [1000, 0, 5]
    outputs = targets + random.normal(size=(120, 3)) * 0.5
    out["values.outputs"], out["values.targets"] = outputs, targets
    out["values.errors"] = [
        metrics.mean_squared_error(targets, outputs),
        metrics.mean_absolute_error(targets, outputs),
        metrics.r2_score(targets, outputs),
    ]
    save_file({name: torch.tensor(np.asarray(value)) for name, value in out.items()}, FILE)


main()
