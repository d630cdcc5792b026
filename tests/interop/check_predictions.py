#!/usr/bin/env python3
"""Checks that `tanren predict` says what the pipelines of Python say of the same model.

    check_predictions.py TANREN_BINARY EMPTY_FOLDER

Trains small classifiers, converts them for Python, and predicts on the same rows with both: texts
with transformers' pipeline, images with torchvision. Labels must be equal and scores within 1e-5;
for texts, the model is also given as the converted folder. Then a GPT on the tokens of a byte-level
BPE: AutoTokenizer must open the converted folder and give the same ids, the text that follows a
prompt must be equal, and bits per byte within 1e-5.

Called by tests/interop/run, which provides the packages.
"""

import json
import math
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


GPT = """
[run]
steps = 80
seed = 1
threads = 1
[model]
kind = "gpt2"
num_layers = 2
num_heads = 2
hidden_size = 32
context_length = 32
dropout = 0.0
[data.train]
kind = "text"
path = "book.txt"
context = 16
tokenizer = "{tokenizer}"
[data.eval]
kind = "text"
path = "held.txt"
context = 16
[batch]
global_batch = 8
[precision]
mode = "fp32"
[optimizer]
kind = "adamw"
learning_rate = 1e-2
[evaluate]
metrics = ["bits_per_byte", "byte_perplexity", "word_perplexity"]
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


def log_probability(model, ids, context):
    """The sum of the log-probabilities of all ids but the first, in windows."""
    total = 0.0
    with torch.no_grad():
        for begin in range(0, len(ids) - 1, context):
            window = torch.tensor(ids[begin : begin + context + 1])
            scores = model(window[:-1].unsqueeze(0)).logits[0].double().log_softmax(1)
            total += float(scores.gather(1, window[1:, None]).sum())
    return total


def check_gpt(binary, folder):
    lines = "the forge trains the blade\nand remembers each blow of hammer 日本\n"
    held = "each blow trains  the hammer and\tthe blade 日本 remembers\n" * 3
    (folder / "book.txt").write_text(lines * 40)
    (folder / "held.txt").write_text(held)
    (folder / "gpt.toml").write_text(GPT.format(tokenizer=TOKENIZERS / "bpe.json"))
    tanren(binary, "run", folder / "gpt.toml", "--out", folder / "gpt", "--quiet")
    tanren(binary, "convert", folder / "gpt", folder / "gpt_python", "--quiet")
    copied = (folder / "gpt_python" / "tokenizer.json").read_bytes()
    expect(copied == (TOKENIZERS / "bpe.json").read_bytes(), "gpt: another tokenizer.json")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "gpt_python")
    tanren(binary, "convert", folder / "held.txt", folder / "held.bin", "--tokenizer", TOKENIZERS / "bpe.json")
    raw = (folder / "held.bin").read_bytes()
    ids = [int.from_bytes(raw[i : i + 2], "little") for i in range(0, len(raw), 2)]
    expect(tokenizer(held).input_ids == ids, "gpt: AutoTokenizer gives other ids")

    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "gpt_python").eval()
    prompt = "the forge"
    begin = tokenizer(prompt, return_tensors="pt").input_ids
    written = model.generate(begin, max_new_tokens=16, do_sample=False, pad_token_id=0, eos_token_id=None)
    theirs = tokenizer.decode(written[0], clean_up_tokenization_spaces=False)
    asked = ["--prompt", prompt, "--set", "generate.temperature=0", "--set", "generate.tokens=16"]
    for form in ("gpt", "gpt/model.tanren.safetensors", "gpt_python"):
        ours = tanren(binary, "generate", folder / form, *asked)
        expect(ours == theirs + "\n", f"gpt, {form}: {ours!r} and {theirs!r}")

    said = json.loads(tanren(binary, "eval", folder / "gpt", "--json"))
    total = log_probability(model, ids, 16)
    first = tokenizer.decode(ids[:1])  # which nothing predicts
    text_bytes = len(held.encode()) - len(first.encode())
    words = len(held.split()) - 1
    expected = {
        "bits_per_byte": -total / text_bytes / math.log(2),
        "byte_perplexity": math.exp(-total / text_bytes),
        "word_perplexity": math.exp(-total / words),
    }
    for name, value in expected.items():
        off = abs(said["evaluate." + name] - value) / value
        expect(off < 1e-5, f"gpt: {name} is {said['evaluate.' + name]}, and {value} in Python")
    print(f"[interop] gpt: the same ids, text and perplexities ({said['evaluate.bits_per_byte']:.4f} bits a byte)")


def main():
    binary, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    check_texts(binary, folder)
    check_images(binary, folder)
    check_gpt(binary, folder)


main()
