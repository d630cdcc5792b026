#!/usr/bin/env python3
"""Checks that examples/edges2digits/generator.toml trains under the real torchrun as on one rank, and
that the real TensorBoard reads the pictures of both runs.

    check_edges2digits.py TANREN_BINARY DIGITS_TO_PAIRS PYTHON_WITH_TORCH EMPTY_FOLDER

In fp64 all losses of two processes, which torchrun starts, must be those of one to 1e-9 of their size.
At the file's own level, O1 in bf16, rounding grows from update to update (in fp32, too), so the first
five must agree to 1e-3. Each picture must be in TensorBoard once, and equal, pixel by pixel, its row of
the PNG of that step.

Called by tests/interop/run, which provides the packages.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).resolve().parents[2]
STEPS, EVERY, SIDE, SAMPLES = 30, 10, 64, 4
FP64 = ("precision.level=", "precision.mode=fp64", "metrics.images_every=0")
TAGS = [f"eval/pictures/{i}" for i in range(SAMPLES)]


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] edges2digits: {what}")


def run(before, binary, pairs, folder, *more):
    """Trains generator.toml, shortened; `before` are the words of a launcher, `more` further keys."""
    command = [*before, binary, "run", ROOT / "examples/edges2digits/generator.toml", "--out", folder]
    for option in (f"run.steps={STEPS}", f"metrics.images_every={EVERY}", "run.threads=1",
                   "evaluate.every=0", f"data.train.path={pairs / 'train'}",
                   f"data.eval.path={pairs / 'held'}", *more):
        command += ["--set", option]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    expect(done.returncode == 0, f"{' '.join(map(str, before))} tanren run: {done.stdout[-2000:]}"
                                 f"{done.stderr[-2000:]}")
    return done.stdout


def losses(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "attempt" in line]


def compare(folder, suffix, steps, most):
    """Of the first `steps` losses, the largest distance of two ranks' from one rank's."""
    one, two = losses(folder / f"one{suffix}"), losses(folder / f"two{suffix}")
    expect(len(one) == len(two) == STEPS, f"the logs have {len(one)} and {len(two)} losses")
    far = max(abs(a - b) / abs(a) for a, b in zip(one[:steps], two))
    expect(far <= most, f"the first {steps} losses of two ranks{suffix} differ by {far:.1e} of one's")
    expect(one[-1] < one[0] / 2, f"the loss{suffix} went from {one[0]} to {one[-1]}")
    return far


def check_pictures(folder):
    """Every picture is there once, in TensorBoard as in images/."""
    steps = list(range(EVERY, STEPS + 1, EVERY))
    files = sorted(path.name for path in (folder / "images").iterdir())
    expect(files == [f"step-{step:06}.png" for step in steps], f"images/ of {folder.name} has {files}")
    events = sorted(path.name for path in (folder / "tensorboard").iterdir())
    expect(len(events) == 1, f"tensorboard/ of {folder.name} has {events}, and one rank writes")
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"images": 0})
    accumulator.Reload()
    tags = sorted(accumulator.Tags()["images"])
    expect(tags == TAGS, f"the tags of pictures are {tags}")
    for row, tag in enumerate(TAGS):
        images = accumulator.Images(tag)
        expect([image.step for image in images] == steps,
               f"{tag} is of steps {[image.step for image in images]}")
        for image in images:
            seen = Image.open(io.BytesIO(image.encoded_image_string)).convert("RGB")
            expect(seen.size == (image.width, image.height) == (3 * SIDE, SIDE),
                   f"{tag} is {seen.size}, declared as {image.width} x {image.height}")
            with Image.open(folder / "images" / f"step-{image.step:06}.png") as sheet:
                part = sheet.convert("RGB").crop((0, row * SIDE, 3 * SIDE, (row + 1) * SIDE))
            expect(seen.tobytes() == part.tobytes(), f"{tag} of step {image.step} is not its PNG's row")


def main():
    binary, to_pairs, python, folder = (Path(word).absolute() for word in sys.argv[1:5])
    pairs = folder / "pairs"
    subprocess.run([to_pairs, ROOT / "examples/digits", pairs], check=True, stdout=subprocess.DEVNULL)
    run([], binary, pairs, folder / "one")
    torchrun = [python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2",
                "--standalone"]
    told = run(torchrun, binary, pairs, folder / "two")
    expect("rank 1 of 2: " in told, "torchrun's processes are no ranks of one run")
    run([], binary, pairs, folder / "one-fp64", *FP64)
    run(torchrun, binary, pairs, folder / "two-fp64", *FP64)
    exact = compare(folder, "-fp64", STEPS, 1e-9)
    near = compare(folder, "", 5, 1e-3)
    check_pictures(folder / "one")
    check_pictures(folder / "two")
    print(f"[interop] edges2digits: losses under torchrun are within {exact:.1e} of one rank's in fp64, "
          f"the first five within {near:.1e} at O1; {len(TAGS)} pictures of {STEPS // EVERY} steps are read, each once")


main()
