#!/usr/bin/env python3
"""Writes train.csv and eval.csv from scikit-learn's copy of the UCI handwritten digits.

Needs scikit-learn. The two files are committed, so only a change of the split needs this script.
"""

import csv
from pathlib import Path
from random import Random

from sklearn.datasets import load_digits

HELD_OUT = 0.2  # of each class
SEED = 0
FOLDER = Path(__file__).resolve().parent


def split(labels):
    """Returns the indices of the training and held-out rows, each in the order of the source."""
    held_out = set()
    random = Random(SEED)
    for digit in range(10):
        rows = [i for i, label in enumerate(labels) if label == digit]
        held_out.update(random.sample(rows, round(HELD_OUT * len(rows))))
    everything = range(len(labels))
    return [i for i in everything if i not in held_out], sorted(held_out)


def write(name, rows, images, labels):
    with open(FOLDER / name, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["label"] + [f"p{i}" for i in range(64)])
        out.writerows([labels[i], *(int(value) for value in images[i])] for i in rows)


def main():
    digits = load_digits()
    labels = [int(label) for label in digits.target]
    train, evaluation = split(labels)
    write("train.csv", train, digits.data, labels)
    write("eval.csv", evaluation, digits.data, labels)
    print(f"train.csv: {len(train)} images, eval.csv: {len(evaluation)} images")


if __name__ == "__main__":
    main()
