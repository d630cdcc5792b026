#!/usr/bin/env python3
"""Writes train.csv and eval.csv from scikit-learn's copy of the UCI wine data.

Needs scikit-learn. The two files are committed, so only a change of the split needs this script.
"""

import csv
from pathlib import Path
from random import Random

from sklearn.datasets import load_wine

HELD_OUT = 0.2  # of each class
SEED = 0
FOLDER = Path(__file__).resolve().parent


def split(labels):
    """Returns the indices of the training and held-out rows, each in the order of the source."""
    held_out = set()
    random = Random(SEED)
    for label in sorted(set(labels)):
        rows = [i for i, other in enumerate(labels) if other == label]
        held_out.update(random.sample(rows, round(HELD_OUT * len(rows))))
    return [i for i in range(len(labels)) if i not in held_out], sorted(held_out)


def shortest(value):
    """The shortest text that reads back as the same number."""
    return repr(float(value)).removesuffix(".0")


def main():
    wine = load_wine()
    names = [str(wine.target_names[label]) for label in wine.target]
    for file, rows in zip(("train.csv", "eval.csv"), split(names)):
        with open(FOLDER / file, "w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow([*wine.feature_names, "cultivar"])
            writer.writerows([*map(shortest, wine.data[i]), names[i]] for i in rows)
        print(f"{file}: {len(rows)} wines")


if __name__ == "__main__":
    main()
