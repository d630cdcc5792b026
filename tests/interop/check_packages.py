#!/usr/bin/env python3
"""Checks that tanren trains packages of Python models as PyTorch does.

    check_packages.py TANREN_BINARY EMPTY_FOLDER [NAME...]

For each model: tanren_export makes a package, and `tanren run`, without Python in PATH, and PyTorch each
train it for 20 steps on the same batches; the losses must agree to 1e-5, in bf16 to 1e-2. Then `tanren convert`
writes the trained weights, which the Python class must load strictly; its outputs must equal those of PyTorch's
training to 1e-5 of their size, its loss that of `tanren eval`. One package takes any number of samples and
tokens. Two models are trained as TorchScript, too. What tanren_export refuses is refused with its reason. An export
that is stopped leaves nothing, or what the next one removes.

Called by tests/interop/run, which provides the packages.
"""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import torch
import torchvision
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

PYTHON = str(Path(__file__).parents[2] / "python")
sys.path.insert(0, PYTHON)
import tanren_export as te  # noqa: E402

STEPS, BATCH, SAMPLES = 20, 4, 20
TOKENS, LONGEST, VOCAB, CLASSES = 12, 64, 40, 3
COUNTS, LENGTHS = (1, 2, 3, 7), (8, 33, LONGEST)

CONFIG = """
[run]
steps = {steps}
seed = 1
threads = 1
[model]
{model}
[data.train]
kind = "tensors"
path = "{data}"
{classes}
[data.eval]
kind = "tensors"
path = "{data}"
[data]
shuffle = false
[batch]
global_batch = {batch}
[optimizer]
kind = "adamw"
learning_rate = 1e-3
weight_decay = 0.01
[checkpoint]
keep = 1
"""


def summed(scores, labels):
    return functional.cross_entropy(scores.flatten(0, -2), labels.flatten(), reduction="sum")


class Bert:
    precision, dynamic = "fp32", {"tokens": ["inputs.1", "attention_mask.1"]}
    values = {"inputs": [0, VOCAB - 1], "attention_mask": None, "labels": [0, CLASSES - 1]}
    opened, counts = transformers.BertForSequenceClassification, {"cross_entropy": "samples"}

    def make(self):
        sizes = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        sizes |= dict(intermediate_size=32, max_position_embeddings=LONGEST, num_labels=CLASSES)
        off = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        return self.opened(transformers.BertConfig(**sizes, **off))

    def data(self, samples=SAMPLES, tokens=TOKENS):
        inputs = torch.randint(VOCAB, (samples, tokens))
        lengths = torch.randint(4, tokens + 1, (samples,))
        mask = (torch.arange(tokens) < lengths[:, None]).long()
        labels = torch.randint(CLASSES, (samples,))
        return {"inputs": inputs, "attention_mask": mask, "labels": labels}

    def scores(self, model, batch):
        return model(batch["inputs"], attention_mask=batch["attention_mask"]).logits

    def terms(self, scores, batch):
        return {"cross_entropy": summed(scores, batch["labels"])}

    def loss(self, model, batch):
        scores = self.scores(model, batch)
        sums = self.terms(scores, batch)
        return te.Terms(scores, **{name: te.Sum(one, self.counts[name]) for name, one in sums.items()})

    def mean(self, model, batch):
        sizes = {"samples": len(batch["labels"]), "tokens": batch["labels"].numel()}
        sums = self.terms(self.scores(model, batch), batch)
        return sum(one / sizes[self.counts[name]] for name, one in sums.items())

    def open(self, folder):
        model, info = self.opened.from_pretrained(folder, output_loading_info=True)
        left = {key: info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
        expect(not any(left.values()), f"{type(self).__name__}: from_pretrained says {left}")
        return model.eval()


class BertBf16(Bert):
    precision = "bf16"


class Gpt2(Bert):
    dynamic = {"tokens": ["inputs.1", "labels.1"]}
    values = {"inputs": [0, VOCAB - 1], "labels": [0, VOCAB - 1]}
    opened, counts = transformers.GPT2LMHeadModel, {"cross_entropy": "tokens"}

    def make(self):
        sizes = dict(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=LONGEST)
        off = dict(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
        return self.opened(transformers.GPT2Config(**sizes, **off, bos_token_id=None, eos_token_id=None))

    def data(self, samples=SAMPLES, tokens=TOKENS):
        drawn = torch.randint(VOCAB, (samples, tokens + 1))
        return {"inputs": drawn[:, :-1].contiguous(), "labels": drawn[:, 1:].contiguous()}

    def scores(self, model, batch):
        return model(batch["inputs"]).logits


class Plain(Bert):
    dynamic, values = None, {"inputs": None, "labels": [0, CLASSES - 1]}

    def scores(self, model, batch):
        return model(batch["inputs"])

    def open(self, folder):
        model = self.make()
        model.load_state_dict(torch.load(folder / "model.pth", weights_only=True), strict=True)
        return model.eval()


class Resnet(Plain):
    # In fp32, batch norm over four samples of 2 x 2 makes a hundredth of the loss out of rounding.
    precision = "fp64"

    def make(self):
        return torchvision.models.resnet18(num_classes=CLASSES)

    def data(self, samples=SAMPLES):
        return {"inputs": torch.randn(samples, 3, 64, 64), "labels": torch.randint(CLASSES, (samples,))}


class OwnModule(nn.Module):
    def __init__(self):
        super().__init__()
        # Without a bias, which the norm would take away: its gradient is rounding alone, of which Adam
        # makes whole steps.
        self.first, self.norm = nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16)
        self.second, self.head = nn.Linear(16, 16), nn.Linear(16, CLASSES)
        self.unused = nn.Linear(2, 2)

    def forward(self, inputs):
        x = functional.gelu(self.norm(self.first(inputs)))
        return self.head(x + functional.relu(self.second(x)))


class Own(Plain):
    """Two terms, batch norm, parameters without gradient."""

    counts = {"cross_entropy": "samples", "size": "samples"}

    def make(self):
        return OwnModule()

    def data(self, samples=SAMPLES):
        return {"inputs": torch.randn(samples, 6), "labels": torch.randint(CLASSES, (samples,))}

    def terms(self, scores, batch):
        return super().terms(scores, batch) | {"size": 0.01 * scores.square().sum()}


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] packages: {what}")


def in_precision(case, model, data):
    if case.precision == "fp64":
        model = model.double()
        data = {name: f.double() if f.is_floating_point() else f for name, f in data.items()}
    return model, data


def trained_by_pytorch(case, model, data, steps=STEPS, size=BATCH):
    """Trains on consecutive batches; returns the loss of each."""
    optimizer = torch.optim.AdamW(
        [one for one in model.parameters() if one.requires_grad], lr=1e-3, weight_decay=0.01
    )
    samples, losses = len(data["labels"]), []
    model.train()
    for step in range(steps):
        begin = step * size % samples
        batch = {name: field[begin : begin + size] for name, field in data.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"):
            loss = case.mean(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def tanren(binary, *arguments):
    # Without Python and compilers in PATH.
    result = subprocess.run(
        [binary, *arguments], check=False, capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"}
    )
    expect(result.returncode == 0, f"tanren {arguments}: {result.stderr}{result.stdout}")
    return result.stdout


def trained_by_tanren(binary, folder, out, section, data, steps=STEPS, size=BATCH):
    save_file(data, folder / f"{out}.safetensors")
    # A few samples have not all of the classes.
    classes = f"classes = {CLASSES}" if data["labels"].dim() == 1 else ""
    config = CONFIG.format(steps=steps, batch=size, model=section, data=f"{out}.safetensors", classes=classes)
    (folder / f"{out}.toml").write_text(config)
    tanren(binary, "run", folder / f"{out}.toml", "--out", folder / out, "--quiet")
    log = [json.loads(line) for line in (folder / out / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in log if "loss" in line]


def apart(ours, theirs, what, most):
    ours, theirs = (torch.tensor(each, dtype=torch.double) for each in (ours, theirs))
    expect(len(ours) == len(theirs), f"{what}: {len(ours)} losses instead of {len(theirs)}")
    off = ((ours - theirs).abs() / theirs.abs()).max().item()
    expect(off < most, f"{what}: losses differ by {off:.1e}")
    return off


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


PACKAGE = 'kind = "package"\npath = "net.package"'


def check(case, binary, folder):
    name, most = type(case).__name__, 1e-2 if case.precision == "bf16" else 1e-5
    folder.mkdir()
    torch.manual_seed(11)
    model, raw = case.make(), case.data()
    begun = {key: value.clone() for key, value in model.state_dict().items()}
    example = {key: field[:BATCH] for key, field in raw.items()}
    te.export(
        model, case.loss, example, folder / "net.package", precision=case.precision, dynamic=case.dynamic,
        metrics="classes",
    )
    left = [each.name for each in folder.iterdir()]
    expect(left == ["net.package"], f"{name}: beside the package lie {left}")
    manifest = json.loads((folder / "net.package/manifest.json").read_text())
    values = {field["name"]: field["values"] for field in manifest["fields"]}
    expect(values == case.values, f"{name}: bounds {values} instead of {case.values}")
    ignored = [field["name"] for field in manifest["fields"] if field["ignored"] == -100]
    expect(ignored == ["labels"], f"{name}: cross_entropy ignores -100 in labels alone, not in {ignored}")
    expect(manifest["draws"] == "", f"{name}: {manifest['draws']} draws, with all dropout at 0")
    has_norm = any("running_mean" in buffer["name"] for buffer in manifest["buffers"])
    expect(manifest["couples_samples"] == has_norm, f"{name}: couples_samples is wrong")
    ours = trained_by_tanren(binary, folder, "run", PACKAGE, raw)
    model, data = in_precision(case, model, raw)
    losses = apart(ours, trained_by_pytorch(case, model, data), name, most)

    tanren(binary, "convert", folder / "run", folder / "python", "--quiet")
    opened, _ = in_precision(case, case.open(folder / "python"), {})
    with torch.no_grad():
        trained = relative(case.scores(opened, data), case.scores(model, data))
        loss = case.mean(opened, data).item()
    said = json.loads(tanren(binary, "eval", folder / "run", "--json"))["evaluate.loss"]
    evaluated = abs(said - loss) / loss
    expect(trained < most, f"{name}: outputs after {STEPS} steps differ by {trained:.1e}")
    expect(evaluated < most, f"{name}: tanren's evaluation and Python's differ by {evaluated:.1e}")
    sizes = ""
    if case.dynamic and case.precision == "fp32":
        worst = check_sizes(case, binary, folder, begun)
        sizes = f", at {COUNTS} samples of {LENGTHS} tokens losses within {worst:.1e}"
    shutil.rmtree(folder)
    print(
        f"[interop] {name}: {STEPS} losses within {losses:.1e} of PyTorch's, opened in Python: "
        f"outputs within {trained:.1e} of its own training, loss within {evaluated:.1e} of ours{sizes}"
    )


def check_sizes(case, binary, folder, begun):
    worst = 0.0
    for samples in COUNTS:
        for tokens in LENGTHS:
            what = f"{samples}x{tokens}"
            model, data = case.make(), case.data(2 * samples, tokens)
            model.load_state_dict(begun)
            ours = trained_by_tanren(binary, folder, what, PACKAGE, data, steps=2, size=samples)
            theirs = trained_by_pytorch(case, model, data, steps=2, size=samples)
            worst = max(worst, apart(ours, theirs, f"{type(case).__name__} {what}", 1e-5))
    return worst


class OneTerm(Own):
    counts = {"cross_entropy": "samples"}

    def terms(self, scores, batch):
        return Plain.terms(self, scores, batch)


class Wide(OneTerm):
    def make(self):
        layers = (nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, CLASSES))

    def data(self, samples=SAMPLES):
        return Resnet.data(self, samples)


def check_torchscript(case, binary, folder):
    name = f"{type(case).__name__} as TorchScript"
    folder.mkdir()
    torch.manual_seed(11)
    model, data = case.make(), case.data()
    torch.jit.script(model).save(str(folder / "net.pt"))
    section = 'kind = "torchscript"\npath = "net.pt"\nloss = "cross_entropy"'
    ours = trained_by_tanren(binary, folder, "run", section, data)
    off = apart(ours, trained_by_pytorch(case, model, data), name, 1e-5)
    shutil.rmtree(folder)
    print(f"[interop] {name}: {STEPS} losses within {off:.1e} of PyTorch's")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, CLASSES)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, inputs):
        return self.head(inputs)


class Branches(Base):
    def forward(self, inputs):
        if inputs.sum() > 0:  # the line that is told
            return self.head(inputs)
        return -self.head(inputs)


class Fixed(Base):
    def forward(self, inputs):
        return self.head(inputs.view(BATCH, 6))


class Counts(Base):
    def forward(self, inputs):
        self.seen.add_(1)
        return self.head(inputs)


class Assigns(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(CLASSES))

    def forward(self, inputs):
        scores = self.head(inputs)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * scores.detach().mean(0)
        return scores - self.mean


class ClassesFirst(Base):
    def forward(self, inputs):
        return self.head(inputs)[:, :, None].expand(-1, -1, CLASSES)  # as many places as classes


class Café(Base):
    pass


class Complex(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("phases", torch.ones(3, dtype=torch.complex64))


class Drops(Base):
    """Own normalisation over the samples couples them; dropout does not."""

    def __init__(self, couples):
        super().__init__()
        self.couples = couples

    def forward(self, inputs):
        inputs = functional.dropout(inputs, 0.5, self.training)
        return self.head(inputs - inputs.mean(0) if self.couples else inputs)


class Attends(Base):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, inputs):
        x = inputs[:, None, :, None].expand(-1, 1, -1, 8)
        x = functional.scaled_dot_product_attention(x, x, x, dropout_p=self.dropout if self.training else 0.0)
        return self.head(x.mean((1, 3)))


class Zeroed(Base):
    """All gradients behind its head are 0 at first, right or wrong."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        nn.init.zeros_(self.head.weight)

    def forward(self, inputs):
        return self.head(self.body(inputs).tanh())


def summed_loss(model, batch):
    scores = model(batch["inputs"])
    return te.Terms(scores, ce=te.Sum(summed(scores, batch["labels"])))


def refused(words, function):
    try:
        function()
    except te.ExportError as error:
        expect(words in str(error) and "\n" not in str(error), f"refused with {error}, not with {words!r}")
        return
    expect(False, f"not refused: {words}")


def check_traced():
    """What is known without compiling: the traced graph stands for the compiled one."""
    torch.manual_seed(11)
    example = {"inputs": torch.randn(BATCH, 6), "labels": torch.randint(CLASSES, (BATCH,))}

    def traced(model):
        parts = te.Parts(model, summed_loss, example, "fp32", {}, {}, {}, "classes", "labels", ())
        with parts.modes():
            terms = te.terms_of(parts)
            return parts, te.TrainGraph(parts, terms), te.PredictGraph(parts)

    for model, has_draws, couples in (
        (Attends(0.0), False, False),
        (Attends(0.5), True, False),
        (Drops(False), True, False),
        (Drops(True), True, True),
    ):
        _, graph, _ = traced(model)
        expect(bool(graph.draws) == has_draws, f"{type(model).__name__}: draws is {graph.draws!r}")
        expect(graph.couples == couples, f"{type(model).__name__}: couples is {graph.couples}")

    for model in (Zeroed(), Drops(False)):
        parts, graph, predict = traced(model)

        def compared(factor, parts=parts, graph=graph, predict=predict):
            def train(*given):
                with torch.no_grad():
                    *results, last = graph.module(*given)
                place = 1 + list(parts.parameters).index("body.weight") if "body.weight" in parts.parameters else 1
                if place < len(results):
                    results[place] = factor * results[place]
                return [*results, last]

            with parts.modes():
                te.compare(parts, graph, train, predict.module, 1, graph.sizes)

        compared(1.0)
        refused("training at 4 samples, beside the weights: ", lambda check=compared: check(0.9))

    one = {"min": 4, "max": 64, "multiple": 4}
    both = te.common_sizes({"tokens": one}, {"tokens": {"min": 1, "max": 70, "multiple": 6}})
    expect(both == {"tokens": {"min": 12, "max": 60, "multiple": 12}}, f"sizes {both}")
    print("[interop] tanren_export finds what draws, what couples samples, and gradients that are wrong")


def check_refusals(folder):
    def penalty(model, batch):
        scores = model(batch["inputs"])
        once = 1e-3 * sum(one.square().sum() for one in model.parameters())
        return te.Terms(scores, ce=te.Sum(summed(scores, batch["labels"]) + once))

    def weighted(training, evaluation, **options):
        def of(model, batch):
            scores = model(batch["inputs"])
            weight = training if model.training else evaluation
            more = te.Sum(scores.square().sum(), weight=weight, **options)
            return te.Terms(scores, ce=te.Sum(summed(scores, batch["labels"])), more=more)

        return of

    temperature = nn.Parameter(torch.ones(()))

    def learned(model, batch):
        scores = model(batch["inputs"]) * temperature
        return te.Terms(scores, ce=te.Sum(summed(scores, batch["labels"])))

    def loss(reduction):
        def of(model, batch):
            scores = model(batch["inputs"])
            return te.Terms(scores, ce=te.Sum(functional.cross_entropy(scores, batch["labels"], reduction=reduction)))

        return of

    torch.manual_seed(11)
    example = {"inputs": torch.randn(BATCH, 6), "labels": torch.randint(CLASSES, (BATCH,))}
    one = {name: field[:1] for name, field in example.items()}
    wide = {"dynamic": {"w": "inputs.1"}, "ranges": {"w": (6, 9)}}
    places = example | {"labels": torch.randint(CLASSES, (BATCH, CLASSES))}
    cases = [
        ("is no sum over samples", Base(), loss("mean"), example, {}),
        ("is no sum: a tensor without dims", Base(), loss("none"), example, {}),
        ("check_packages.py:", Branches(), loss("sum"), example, {}),
        ("`if inputs.sum() > 0:", Branches(), loss("sum"), example, {}),
        (f"takes only {BATCH} at inputs.0", Fixed(), loss("sum"), example, {}),
        ("takes only 6 at inputs.1", Base(), loss("sum"), example, {"dynamic": {"width": ["inputs.1"]}}),
        ("changes seen", Counts(), loss("sum"), example, {}),
        ("give at least 2", Base(), loss("sum"), one, {}),
        ("no parameter is named 'body.*'", Base(), loss("sum"), example, {"freeze": ["body.*"]}),
        ("takes only 6 at inputs.1", Base(), loss("sum"), example, wide),
        ("ranges: inputs.0", Base(), loss("sum"), example, {"ranges": {"batch": (1, 2)}}),
        ("all parameters are frozen", Base(), loss("sum"), example, {"freeze": ["*"]}),
        ("no field 'truth'", Base(), loss("sum"), example, {"metrics": "classes", "targets": "truth"}),
        ("values: 'inputs'", Base(), loss("sum"), example, {"values": {"inputs": (0, 9)}}),
        ("labels of the example holds", Base(), loss("sum"), example, {"values": {"labels": (7, 9)}}),
        ("precision = 'int8'", Base(), loss("sum"), example, {"precision": "int8"}),
        ("is no sum over samples", Base(), loss("mean"), example, {"precision": "bf16"}),
        ("is no sum over samples", Base(), penalty, example, {}),
        ("assigns its buffer mean", Assigns(), loss("sum"), example, {}),
        ("in training and", Base(), weighted(0.4, 0.0), example, {}),
        ("a term has weight 0", Base(), weighted(0.0, 0.0), example, {}),
        ("term more has weight nan", Base(), weighted(torch.nan, torch.nan), example, {}),
        ("'sub words' is no name", Base(), weighted(1.0, 1.0, count="sub words"), example, {}),
        ("the loss has a parameter []", Base(), learned, example, {}),
        ("along dim 1 or along the last", ClassesFirst(), loss("sum"), places, {"metrics": "classes"}),
        ("metrics: 'acuracy'", Base(), loss("sum"), example, {"metrics": ["acuracy"]}),
        ("has a name beyond", Café(), loss("sum"), example, {}),
        ("phases is of torch.complex64", Complex(), loss("sum"), example, {}),
    ]
    folder.mkdir()
    for words, model, function, batch, options in cases:
        refused(words, lambda: te.export(model, function, batch, folder / "net.package", **options))
        expect(not list(folder.iterdir()), f"after {words!r} lie {list(folder.iterdir())}")
    other = folder / "net.package"
    for text in (None, "{", "[]", '{"name": "an app"}'):
        other.mkdir(exist_ok=True)
        if text:
            (other / "manifest.json").write_text(text)
        before = sorted(other.iterdir())
        refused("exists and is no package", lambda: te.export(Base(), loss("sum"), example, other))
        expect(sorted(other.iterdir()) == before, "a folder that is no package was changed")
    print(f"[interop] tanren_export refuses {len(cases) + 4} wrong inputs, and leaves nothing")


def check_left(folder):
    """Of the folders beside a package, what exports that died have left goes, and nothing else."""
    folder.mkdir()
    package = folder / "net.package"
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()

    def dead(process=1):  # in a container, somebody else may have the number
        made = folder / f".net.package.{te.platform.node()}-{process}.abcdefgh"
        made.mkdir()
        (made / "file").write_text("")
        return made

    with mock.patch("os.getpid", return_value=ended.pid):  # an export in another container
        with te.beside(package) as own, te.beside(package) as second:
            left, other = dead(), folder / ".other.package.host-1.abcdefgh"
            other.mkdir()
            te.remove_left(package)
            expect(own.is_dir() and second.is_dir(), "the folder of an export that goes on was removed")
            expect(not left.exists(), "what a dead export left was not removed")
            expect(other.is_dir(), "the folder of another package was removed")
        expect(not own.exists() and not second.exists(), "an export's own folders stay after it")

    left = dead(ended.pid)  # it was killed between its two renames
    (left / "old").mkdir()
    (left / "old" / "manifest.json").write_text("older")
    te.remove_left(package)
    expect((package / "manifest.json").read_text() == "older", "the older package was not put back")
    expect(not left.exists(), "a folder stays after its older package was put back")
    (folder / "store").mkdir()
    link, left = folder / "link.package", folder / f".link.package.{te.platform.node()}-1.abcdefgh"
    left.mkdir()
    (left / "old").symlink_to("store")
    te.remove_left(link)
    expect(link.is_symlink() and link.is_dir(), "a link to the older package was not put back")
    link.unlink()
    (folder / "store").rmdir()
    left = dead()
    (left / "old").mkdir()
    te.remove_left(package)
    expect((package / "manifest.json").read_text() == "older", "a package was exchanged for what was left")
    expect(not left.exists(), "what a dead export left beside a package was not removed")

    left = dead(ended.pid)
    for place, error in (("os.open", PermissionError), ("pathlib.Path.iterdir", PermissionError)):
        with mock.patch(place, side_effect=error(13, "another user's")):
            te.remove_left(package)
        expect(left.exists(), f"a folder was removed without {place}")
    with mock.patch("fcntl.flock", side_effect=OSError(95, "no locks here")):
        te.remove_left(package)
        expect(left.exists(), "a folder was removed where nobody can lock one")
        with te.beside(package) as own:
            expect(own.is_dir(), "no folder where there are no locks")
    te.remove_left(package)

    real = shutil.rmtree

    def disturbed(*arguments, **options):
        signal.raise_signal(signal.SIGTERM)
        real(*arguments, **options)

    def unwind(*_):
        raise SystemExit(1)

    before, has_ended = signal.signal(signal.SIGTERM, unwind), False
    try:
        with mock.patch("shutil.rmtree", disturbed), te.beside(package) as own:
            (own / "file").write_text("")
    except SystemExit:
        has_ended = True
    finally:
        signal.signal(signal.SIGTERM, before)
    expect(has_ended, "a signal was lost while a folder was removed")
    expect(sorted(folder.iterdir()) == sorted([package, other]), f"beside a package lie {list(folder.iterdir())}")
    print("[interop] tanren_export removes what dead exports left, and no folder of a living one")


STOPPED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
import tanren_export as te
def loss(model, batch):
    return te.Terms(None, size=te.Sum(model(batch["inputs"]).square().sum()))
te.export(torch.nn.Linear(3, 2), loss, {"inputs": torch.randn(2, 3)}, sys.argv[2])
"""


def check_stopped(folder):
    folder.mkdir()
    package = folder / "net.package"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        command = [sys.executable, "-c", STOPPED, PYTHON, str(package)]
        # Behind an &, this process ignores SIGINT, and a child would, too.
        heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as export:
            while "compiling" not in (line := export.stderr.readline()):
                expect(line, "an export ended before it compiled anything")
            export.send_signal(number)
            export.wait()
        expect(export.returncode == -number, f"signal {number} ended an export with {export.returncode}")
        left = [each.name for each in folder.iterdir()]
        expect(bool(left) == (number == signal.SIGKILL), f"after signal {number} lie {left}")
    refused("precision = 'int8'", lambda: te.export(Base(), summed_loss, {}, package, precision="int8"))
    expect(not list(folder.iterdir()), "what a killed export leaves was not removed by the next one")
    print("[interop] tanren_export leaves nothing when it is stopped, and removes what a killed one left")


def main():
    binary, folder, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    if not names or "traced" in names:
        check_traced()
    if not names or "refusals" in names:
        check_refusals(folder / "refusals")
    if not names or "left" in names:
        check_left(folder / "left")
    if not names or "stopped" in names:
        check_stopped(folder / "stopped")
    for case in (Own(), Bert(), BertBf16(), Gpt2(), Resnet()):
        if not names or type(case).__name__ in names:
            check(case, binary, folder / type(case).__name__)
    for case in (OneTerm(), Wide()):
        if not names or type(case).__name__ in names:
            check_torchscript(case, binary, folder / type(case).__name__)


main()
