#!/usr/bin/env python3
"""Checks that `tanren predict` says what the pipelines of Python say of the same model.

    check_predictions.py TANREN_BINARY EMPTY_FOLDER

Trains small classifiers, converts them for Python, and predicts on the same rows with both: texts
with transformers' pipeline, images with torchvision. Labels must be equal and scores within 1e-5;
for texts, the model is also given as the converted folder.

Called by tests/interop/run, which provides the packages.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import torch
import torchvision
import transformers
from PIL import Image

SOURCE = Path(__file__).resolve().parent.parent.parent
TOKENIZERS = SOURCE / "tests" / "fixtures" / "tokenizer"

TEXTS = """
[run]
steps = 20
seed = 1
threads = 1
[model]
kind = "bert"
num_layers = 2
num_heads = 2
hidden_size = 16
context_length = 16
[data.train]
kind = "text_table"
path = "train.csv"
context = 16
tokenizer = "{tokenizer}"
[batch]
global_batch = 8
[precision]
mode = "fp32"
[optimizer]
kind = "adamw"
learning_rate = 1e-2
"""
IMAGES = """
[run]
steps = 8
seed = 1
threads = 1
[model]
kind = "resnet"
size = "resnet18"
[data.train]
kind = "images"
path = "train"
size = [32]
resize = 40
mean = [0.5, 0.4, 0.3]
std = [0.2, 0.3, 0.4]
[batch]
global_batch = 8
[precision]
mode = "fp32"
"""


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] predictions: {what}")


def tanren(binary, *arguments):
    result = subprocess.run([binary, *arguments], check=False, capture_output=True, text=True)
    expect(result.returncode == 0, f"tanren {arguments}: {result.stderr}{result.stdout}")
    return result.stdout


def predicted(binary, model, source, out):
    tanren(binary, "predict", model, source, "--out", out, "--quiet", "--set", "predict.scores=all")
    return [json.loads(line) for line in out.read_text().splitlines()]


def compare(name, ours, labels, scores):
    expect(len(ours) == len(labels), f"{name}: {len(ours)} rows for {len(labels)}")
    worst = 0.0
    for row, label, theirs in zip(ours, labels, scores):
        expect(row["label"] == label, f"{name}: {row} and {label}")
        for one, score in theirs.items():
            worst = max(worst, abs(row["scores"][one] - score))
    expect(worst < 1e-5, f"{name}: scores differ by {worst:.1e}")
    print(f"[interop] {name}: {len(ours)} labels equal, scores within {worst:.1e}")


def check_texts(binary, folder):
    rng = random.Random(3)
    words = {"letters": "a b c d e".split(), "words": "the quick brown fox".split()}

    def text(name):
        return " ".join(rng.choice(words[name] + ["the", "a"]) for _ in range(rng.randint(1, 20)))

    rows = [(name, text(name)) for name in list(words) * 20]
    (folder / "train.csv").write_text("text,label\n" + "".join(f"{t},{n}\n" for n, t in rows))
    (folder / "run.toml").write_text(TEXTS.format(tokenizer=TOKENIZERS / "vocab.txt"))
    tanren(binary, "run", folder / "run.toml", "--out", folder / "run", "--quiet")
    tanren(binary, "convert", folder / "run", folder / "python", "--quiet")
    texts = [text(name) for name in list(words) * 30]
    (folder / "new.txt").write_text("\n".join(texts) + "\n")
    pipeline = transformers.pipeline(
        "text-classification",
        model=str(folder / "python"),
        tokenizer=str(folder / "python"),
        top_k=None,
        device="cpu",
    )
    said = pipeline(texts, truncation=True, max_length=16)
    labels = [max(one, key=lambda answer: answer["score"])["label"] for one in said]
    scores = [{answer["label"]: answer["score"] for answer in one} for one in said]
    whole = folder / "run" / "model.tanren.safetensors"
    compare("texts", predicted(binary, whole, folder / "new.txt", folder / "a.jsonl"), labels, scores)
    ours = predicted(binary, folder / "python", folder / "new.txt", folder / "b.jsonl")
    compare("texts, converted folder", ours, labels, scores)


def check_images(binary, folder):
    torch.manual_seed(5)
    for name, shade in (("cat", 60), ("dog", 190)):
        (folder / "train" / name).mkdir(parents=True)
        for i in range(8):
            pixels = (torch.randn(3, 40 + i, 50) * 30 + shade).clamp(0, 255).to(torch.uint8)
            torchvision.io.write_png(pixels, str(folder / "train" / name / f"{i}.png"))
    (folder / "images.toml").write_text(IMAGES)
    tanren(binary, "run", folder / "images.toml", "--out", folder / "photos", "--quiet")
    tanren(binary, "convert", folder / "photos", folder / "torch", "--quiet")
    ours = predicted(binary, folder / "photos", folder / "train", folder / "c.jsonl")
    model = torchvision.models.resnet18(num_classes=2)
    model.load_state_dict(torch.load(folder / "torch" / "model.pth", weights_only=True))
    model.eval()
    labels, scores = [], []
    prepare = torchvision.transforms.Compose(
        [
            torchvision.transforms.Resize(40),
            torchvision.transforms.CenterCrop(32),
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
        ]
    )
    with torch.no_grad():
        for row in ours:
            image = prepare(Image.open(folder / "train" / row["file"]).convert("RGB"))
            one = model(image.unsqueeze(0)).softmax(1)[0]
            labels.append(["cat", "dog"][int(one.argmax())])
            scores.append({"cat": float(one[0]), "dog": float(one[1])})
    # PIL rounds pixels between the two directions of a resize; within one level of 255 that is what
    # the scores may differ by, so the bound is wider than for texts.
    worst = max(abs(row["scores"]["cat"] - one["cat"]) for row, one in zip(ours, scores))
    expect([row["label"] for row in ours] == labels, "images: labels differ")
    expect(worst < 1e-2, f"images: scores differ by {worst:.1e}")
    print(f"[interop] images: {len(ours)} labels equal, scores within {worst:.1e}")


def main():
    binary, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    check_texts(binary, folder)
    check_images(binary, folder)


main()
