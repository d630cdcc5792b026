#!/usr/bin/env python3
"""Runs a short training and checks that TensorBoard reads the values of log.jsonl.

    check_tensorboard.py TANREN_BINARY EMPTY_FOLDER

Called by tests/interop/run, which provides the packages.
"""

import json
import struct
import subprocess
import sys
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
    expect("stop_after" in config and "hidden" in config, "the config is not there as text")
    expect("plan" in fresh.Tags()["tensors"], "the plan is not there as text")
    print(f"[interop] tensorboard: {curves} curves of 30 steps over a resume agree with log.jsonl")


main()
