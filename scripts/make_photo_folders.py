#!/usr/bin/env python3
"""Cuts the photographs that scikit-learn and scikit-image bring (JPEGs) into class folders:

    python3 -m venv photos-env
    photos-env/bin/pip install pillow scikit-learn
    photos-env/bin/pip install --no-deps scikit-image
    photos-env/bin/python scripts/make_photo_folders.py OUT

Each photograph is a class. OUT/train/<photograph>/ gets crops from its left part, OUT/held/… from
the rest: no pixel is in both. With --width and --height crops have that size (train only, for
benchmarks)."""
import argparse
import importlib.util
import pathlib
import random

from PIL import Image

PHOTOGRAPHS = {
    "china": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "hubble": ("skimage", "data/hubble_deep_field.jpg"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
}


def photograph(package, name):
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise SystemExit(f"{package} is not installed; see the head of this file")
    return Image.open(pathlib.Path(spec.origin).parent / name).convert("RGB")


def cut(image, left, right, size, count, folder, draw):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        x = draw.randint(left, right - size[0])
        y = draw.randint(0, image.height - size[1])
        crop = image.crop((x, y, x + size[0], y + size[1]))
        crop.save(folder / f"{i:03}.jpg", quality=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--height", type=int, default=0)
    parser.add_argument("--count", type=int, default=80, help="training crops of a class")
    asked = parser.parse_args()
    draw = random.Random(0)
    for name, where in PHOTOGRAPHS.items():
        image = photograph(*where)
        if asked.width:
            size = (asked.width, asked.height)
            cut(image, 0, image.width, size, asked.count, asked.out / "train" / name, draw)
            continue
        border = image.width * 7 // 10
        cut(image, 0, border, (96, 96), asked.count, asked.out / "train" / name, draw)
        cut(image, border, image.width, (96, 96), asked.count // 4, asked.out / "held" / name, draw)


if __name__ == "__main__":
    main()
