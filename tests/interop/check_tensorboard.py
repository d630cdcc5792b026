#!/usr/bin/env python3
"""Runs short trainings and checks that TensorBoard reads the values of log.jsonl, and pictures.

    check_tensorboard.py TANREN_BINARY EMPTY_FOLDER

Called by tests/interop/run, which provides the packages.
"""

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CONFIG = """
[run]
steps = 30
seed = 3
threads = 1
[model]
kind = "mlp"
hidden = [16]
[data.train]
kind = "synthetic"
fields = ["inputs: float[8] in [-1, 1]", "labels: int[] in [0, 3]"]
samples = 64
[data.eval]
kind = "synthetic"
fields = ["inputs: float[8] in [-1, 1]", "labels: int[] in [0, 3]"]
samples = 32
[evaluate]
every = 10
[checkpoint]
every = 10
[precision]
mode = "fp32"
"""


def run(binary, folder, *more):
    command = [binary, "run", folder / "run.toml", "--out", folder / "out", "--quiet"]
    for option in more:
        command += ["--set", option]
    subprocess.run(command, check=True)


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def read(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] tensorboard: {what}")


def compare(accumulator, lines, may_repeat=False):
    """Every value of the log must be exactly one point of a curve, at its step. Who watched before a
    crash has read an evaluation that the resumed run repeats: may_repeat takes equal neighbours."""
    expected = {}
    for line in lines:
        if "evaluation" in line:
            for name, value in line["evaluation"].items():
                expected.setdefault("evaluate/" + name, []).append((line["step"], value))
        else:
            for key in ("loss", "grad_norm", "learning_rate"):
                expected.setdefault("train/" + key, []).append((line["step"], line[key]))
            for key in ("seconds", "wait_seconds", "samples_per_second"):
                expected.setdefault("speed/" + key, []).append((line["step"], line["timing"][key]))
            memory = line["timing"]["memory_bytes"]
            expected.setdefault("memory/memory_bytes", []).append((line["step"], memory))
    tags = set(accumulator.Tags()["scalars"])
    expect(tags == set(expected), f"tags {sorted(tags ^ set(expected))} are on one side only")
    for tag, points in expected.items():
        seen = [(event.step, event.value) for event in accumulator.Scalars(tag)]
        if may_repeat:
            seen = [point for i, point in enumerate(seen) if i == 0 or point != seen[i - 1]]
        wanted = [(step, float32(value)) for step, value in points]
        near = len(seen) == len(wanted) and all(
            a == c and abs(b - d) <= 1e-6 * abs(d) for (a, b), (c, d) in zip(seen, wanted)
        )
        expect(near, f"{tag} is {seen[:3]}…, the log says {wanted[:3]}…")
        times = [event.wall_time for event in accumulator.Scalars(tag)]
        expect(times == sorted(times), f"{tag}: times run back")
    return len(expected)


PICTURES = """
[run]
steps = 4
threads = 1
[model]
kind = "mlp"
hidden = [16]
loss = "l1"
[data.train]
kind = "pairs"
path = "pairs"
side_by_side = true
size = [6, 8]
[batch]
global_batch = 2
[precision]
mode = "fp32"
[metrics]
images_every = 2
"""


def png(width, height, rgb):
    """A PNG of one colour."""

    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(rgb) * width) * height
    pixels = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def check_pictures(binary, folder):
    """The pictures that tensorboard reads have the size of a row: input, target, output."""
    (folder / "pairs").mkdir(parents=True)
    for i in range(4):
        (folder / "pairs" / f"{i}.png").write_bytes(png(16, 6, (80 * i, 200, 40)))
    (folder / "run.toml").write_text(PICTURES)
    run(binary, folder)
    accumulator = EventAccumulator(str(folder / "out" / "tensorboard"), size_guidance={"images": 0})
    accumulator.Reload()
    tags = sorted(accumulator.Tags()["images"])
    expect(tags == ["train/pictures/0", "train/pictures/1"], f"the tags of pictures are {tags}")
    for tag in tags:
        images = accumulator.Images(tag)
        expect([image.step for image in images] == [2, 4], f"{tag} is not of steps 2 and 4")
        for image in images:
            size = struct.unpack(">II", image.encoded_image_string[16:24])
            expect((image.width, image.height) == size == (24, 6), f"{tag} is {size} large")
    print("[interop] tensorboard: pictures of 2 steps are read")


def main():
    binary, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    (folder / "run.toml").write_text(CONFIG)
    run(binary, folder, "run.stop_after=17")
    # Simulates a crash after step 17: that checkpoint is removed, so the run resumes from step 10.
    for path in sorted((folder / "out" / "checkpoints" / "step-17").iterdir()):
        path.unlink()
    (folder / "out" / "checkpoints" / "step-17").rmdir()
    watching = read(folder / "out" / "tensorboard")  # opened before the resume
    expect(len(watching.Scalars("train/loss")) == 17, "a first session has not its 17 points")
    run(binary, folder)
    lines = [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines()]
    expect(len(lines) == 33, f"the log has {len(lines)} lines")
    fresh = read(folder / "out" / "tensorboard")
    curves = compare(fresh, lines)
    watching.Reload()
    compare(watching, lines, may_repeat=True)
    config = fresh.Tensors("config")[0].tensor_proto.string_val[0].decode()
    expect("steps = 30" in config and "hidden" in config, "the config is not there as text")
    expect("plan" in fresh.Tags()["tensors"], "the plan is not there as text")
    print(f"[interop] tensorboard: {curves} curves of 30 steps over a resume agree with log.jsonl")
    check_pictures(binary, folder / "pictures")


main()
