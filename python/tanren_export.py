"""Packages of PyTorch models, which tanren trains without Python (docs/packages.md).

    import tanren_export as te
    def loss(model, batch):  # sums over the samples, never means
        scores = model(batch["inputs"])
        summed = torch.nn.functional.cross_entropy(scores, batch["labels"], reduction="sum")
        return te.Terms(scores, cross_entropy=te.Sum(summed, count="samples"))
    te.export(model, loss, {"inputs": inputs, "labels": labels}, "net.package", metrics="classes")

It needs torch 2.11.0, safetensors and a C++ compiler. A package is for the torch, the kind of device and the processor
that it was made with.
"""
import contextlib, copy, ctypes, dataclasses, fcntl, fnmatch, json, math, os, pathlib, platform, re, shutil, signal
import subprocess, sys, tempfile, threading, time, traceback
import torch
if torch.__version__.split("+", maxsplit=1)[0] != "2.11.0":  # what follows is torch's private part, too
    raise ImportError(f"[package] this is torch {torch.__version__}, tanren's libtorch is 2.11.0; "
                      "run: pip install torch==2.11.0")
from safetensors.torch import save_file
from torch.export import Dim, export as trace
from torch.export.exported_program import _decompose_exported_program
from torch.export.graph_signature import InputKind, OutputKind

VERSION = "2.11.0"
UNBOUNDED = 2**31 - 1
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool)
METRIC = re.compile("classes|values|accuracy|top[1-9][0-9]*|(precision|recall|f1)_(binary|macro|micro)|auroc|"
                    "confusion_matrix|mse|mae|r2|psnr|ssim|bits_per_byte|((byte|word)_)?perplexity")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCE = {"fp64": 1e-9, "fp32": 2e-4, "bf16": 1e-2, "fp16": 2e-3}
ROUNDING = 8  # times as far from fp64 as PyTorch in this precision is rounding, too
OPTIONS = {
    "aot_inductor.package": True,
    "aot_inductor.link_libtorch": False,     # libtorch.so needs libtorch_cuda.so; the process has the symbols
    "aot_inductor.embed_kernel_binary": True,
    "cpp.dynamic_threads": True,             # else the thread count of this process is compiled in
    "cpp.enable_kernel_profile": True,       # else profilers and tanren anatomy do not see the kernels
    "cpp.vec_isa_ok": True,                  # Inductor's test needs the link to libtorch; without it: no vectors
}

class ExportError(Exception):
    pass

def fail(what):
    raise ExportError("[package] " + what)

@dataclasses.dataclass
class Sum:
    """One term of the loss: its sum over the samples, the count that divides it ("samples", or one of the batch:
    "tokens", …), and its weight."""
    sum: torch.Tensor
    count: str = "samples"
    weight: float = 1.0

class Terms:
    """What a loss returns: the scores that metrics read (or None), and the terms by name."""
    def __init__(self, scores=None, **terms):
        self.scores, self.terms = scores, terms
        if not terms or not all(isinstance(term, Sum) for term in terms.values()):
            fail("a loss returns te.Terms(scores, name=te.Sum(sum, count=\"samples\"), …) with at least one term")

def export(model, loss, example, path, *, precision="fp32", dynamic=None, ranges=None, values=None, metrics=(),
           targets="labels", freeze=(), tokenizer=None):
    """Writes the package `path` of `model` and `loss(model, batch)`.

    example    a batch of at least 2 samples: names of fields → tensors with the samples along dim 0
    precision  "fp32", "fp64", or "bf16", "fp16": by autocast, with parameters in fp32
    dynamic    {"tokens": ["inputs.1", "attention_mask.1"]}: the dims of fields that vary beside the samples
    ranges     {"tokens": (1, 512)}: their least and largest sizes; of tokens, up to the config's
               max_position_embeddings if there is one
    values     {"inputs": (0, 29999)}: the least and largest number of a field of indices, where tracing does not find
               them; compiled code ends the process at an index that a table does not have
    metrics    "classes", "values", or names of tanren's metrics, of the scores against the field `targets`
    freeze     patterns (glob) of parameters and modules that stay as they are; such modules are in eval mode
    tokenizer  a tokenizer of transformers, saved beside the model's config
    """
    path = pathlib.Path(path)
    remove_left(path)
    if path.exists():
        check_replaceable(path)
    parts = Parts(model, loss, example, precision, dynamic or {}, ranges or {}, values or {}, metrics, targets, freeze)
    path.parent.mkdir(parents=True, exist_ok=True)
    with unwound_by_sigterm():
        write_beside(path, parts, tokenizer)

def write_beside(path, parts, tokenizer):
    """Whole or absent: written beside the target, renamed at the end. No file of an older package is written to, so
    that a process goes on with the one that it has loaded."""
    with beside(path) as folder:
        with parts.modes():
            write(parts, folder, tokenizer)
        os.chmod(folder, 0o755)
        for file in folder.rglob("*"):
            os.chmod(file, 0o755 if file.is_dir() else 0o644)
        if path.exists():
            check_replaceable(path)
            with beside(path) as old:
                os.rename(path, old / "old")
                os.rename(folder, path)
        else:
            os.rename(folder, path)

@contextlib.contextmanager
def beside(path):
    """A new folder beside `path`, removed at the end. It is locked meanwhile, so that other exports leave it: numbers
    of processes say nothing to another container, or to another machine of the same disk."""
    folder, lock = locked_folder(path)
    try:
        yield folder
    finally:
        with undisturbed():
            try:
                remove(folder, path)
            finally:
                os.close(lock)

def locked_folder(path):
    prefix = f".{path.name}.{platform.node()}-{os.getpid()}."
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another export took it for one that was left
            continue
        is_taken = False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # the same
            is_taken = True
        except OSError:  # a file system without locks, where nobody removes it
            pass
        if not is_taken and folder.exists():
            return folder, lock
        os.close(lock)

def remove(folder, path):
    """Removes a folder that was beside `path`. The older package in it is put back if `path` has none."""
    # Ended between the two renames. A relative link leads nowhere from within the folder.
    if os.path.lexists(folder / "old") and not os.path.lexists(path):
        os.rename(folder / "old", path)
    shutil.rmtree(folder, ignore_errors=True)

def remove_left(path):
    """Removes the folders that exports of `path` have left which were killed on this machine: nobody locks them. What
    cannot be read, locked or moved stays."""
    name = re.compile(re.escape(f".{path.name}.{platform.node()}-") + r"[1-9][0-9]*\.[^.]*")
    try:
        left = [each for each in path.parent.iterdir() if name.fullmatch(each.name)]
    except OSError:
        return
    for folder in left:
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder, path)
            finally:
                os.close(lock)

@contextlib.contextmanager
def undisturbed():
    """Signals that would raise within come afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)

@contextlib.contextmanager
def unwound_by_sigterm():
    """SIGTERM would end the process at once: within, it first raises, as SIGINT does, so that files are removed."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    has_come = False
    def unwind(*_):
        nonlocal has_come
        if not has_come:  # a second one does not disturb the removal
            has_come = True
            raise SystemExit(128 + signal.SIGTERM)
    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if has_come:
            signal.raise_signal(signal.SIGTERM)

def check_replaceable(path):
    try:
        is_package = json.loads((path / "manifest.json").read_text())["format"] == "tanren.package"
    except (OSError, ValueError, TypeError, KeyError):
        is_package = False
    if not is_package:
        fail(f"{path} exists and is no package; give another path")

class Parts:
    """A model, its loss and an example, checked, with parameters and buffers taken out of the model."""
    def __init__(self, model, loss, example, precision, dynamic, ranges, values, metrics, targets, freeze):
        if precision not in TOLERANCE:
            fail(f"precision = {precision!r}; one of {', '.join(TOLERANCE)}")
        self.precision, self.tolerance = precision, TOLERANCE[precision]
        self.float = torch.float64 if precision == "fp64" else torch.float32
        self.metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        for name in self.metrics:
            if not METRIC.fullmatch(name):
                fail(f"metrics: {name!r} is no metric of tanren, \"classes\" or \"values\"")
        self.name = type(model).__name__
        if not re.fullmatch("[A-Za-z0-9_]+", self.name):
            fail(f"the class {self.name!r} has a name beyond A-Z, a-z, 0-9 and _")
        self.config = getattr(model, "config", None)
        parameters = dict(model.named_parameters())
        if not parameters:
            fail(f"{self.name} has no parameters")
        tensors = [*model.parameters(), *model.buffers()]
        for name, one in model.state_dict().items():
            if one.dtype not in DTYPES:
                fail(f"{name} is of {one.dtype}, which a package cannot hold")
        if any(each.is_floating_point() and each.dtype != self.float for each in tensors):
            model = copy.deepcopy(model).to(self.float)
            parameters = dict(model.named_parameters())
        self.whole = Whole(model, loss)
        self.device = next(iter(parameters.values())).device
        if any(tensor.device != self.device for tensor in [*model.parameters(), *model.buffers()]):
            fail("the model is on several devices")
        self.fields = {name: self.field(name, tensor) for name, tensor in example.items()}
        self.samples = self.samples_of_fields()
        self.targets = self.targets_of(targets)
        self.classes_are_last, self.classes = False, 0
        self.dims = self.named_dims(dynamic)
        self.ranges = self.ranges_of(ranges)
        self.values = self.values_of(values)
        self.frozen = self.frozen_parameters(parameters, freeze)
        self.patterns = [freeze] if isinstance(freeze, str) else list(freeze)
        self.parameters = {name: one.detach().clone(memory_format=torch.contiguous_format)
                           for name, one in parameters.items()}
        kept = model.state_dict(keep_vars=True)
        buffers = {name: one.detach().clone(memory_format=torch.contiguous_format)
                   for name, one in model.named_buffers()}
        self.buffers = {name: one for name, one in buffers.items() if name in kept}
        self.constants = {name: one for name, one in buffers.items() if name not in kept}
        first = {id(one): name for name, one in parameters.items()}
        self.tied = {name: first[id(one)] for name, one in model.named_parameters(remove_duplicate=False)
                     if first[id(one)] != name}
        for name, _ in model.named_buffers(remove_duplicate=False):
            if name not in buffers and name in kept:
                fail(f"buffer {name} is another buffer, too; register it once")

    def field(self, name, tensor):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
            fail(f"field {name} of the example is no tensor with samples along dim 0")
        if tensor.dtype not in DTYPES:
            fail(f"field {name} is of {tensor.dtype}, which a package cannot hold")
        tensor = tensor.detach().to(self.device).contiguous()
        return tensor.to(self.float) if tensor.is_floating_point() and self.precision == "fp64" else tensor

    def samples_of_fields(self):
        sizes = {name: tensor.shape[0] for name, tensor in self.fields.items()}
        if len(set(sizes.values())) != 1 or next(iter(sizes.values())) < 2:
            fail(f"the example's fields have {sizes} samples; give at least 2, and all fields the same number")
        return next(iter(sizes.values()))

    def targets_of(self, targets):
        if not self.metrics:
            return ""
        if targets not in self.fields:
            fail(f"metrics need the targets, and the example has no field {targets!r}; name it with targets=")
        return targets

    def named_dims(self, dynamic):
        dims = {(name, 0): "batch" for name in self.fields}
        for size, places in dynamic.items():
            if not NAME.fullmatch(size) or size == "batch":
                fail(f"dynamic: {size!r} is no name for a size")
            for place in [places] if isinstance(places, str) else places:
                field, _, dim = place.rpartition(".")
                if field not in self.fields or not dim.isdigit() or not 0 < int(dim) < self.fields[field].dim():
                    fail(f"dynamic: {place!r} is no dim of a field; write \"inputs.1\"")
                if self.fields[field].shape[int(dim)] < 2:
                    fail(f"dynamic: the example has size 1 at {place}; give at least 2")
                dims[field, int(dim)] = size
        return dims

    def ranges_of(self, ranges):
        positions = getattr(self.config, "max_position_embeddings", None)
        found = {name: (1 if name == "batch" else 2, positions if name == "tokens" and positions else UNBOUNDED)
                 for name in self.dims.values()}
        for name, span in ranges.items():
            if name not in found or len(span) != 2 or not 1 <= span[0] <= span[1] <= UNBOUNDED:
                fail(f"ranges: {name!r}: {span} must be the least and largest of a size that dynamic names")
            found[name] = tuple(span)
        for (field, dim), name in self.dims.items():
            if not found[name][0] <= self.fields[field].shape[dim] <= found[name][1]:
                fail(f"ranges: {field}.{dim} of the example is not within {found[name]}")
        return found

    def values_of(self, values):
        for name, span in values.items():
            if name not in self.fields or self.fields[name].is_floating_point() or len(span) != 2 or span[0] > span[1]:
                fail(f"values: {name!r}: {span} must be the least and largest number of a field of indices")
        return {name: tuple(span) for name, span in values.items()}

    def frozen_parameters(self, parameters, freeze):
        patterns = [freeze] if isinstance(freeze, str) else list(freeze)
        for pattern in patterns:
            if not fnmatch.filter(parameters, pattern):
                fail(f"freeze: no parameter is named {pattern!r}; there are {', '.join(list(parameters)[:4])}, …")
        frozen = {name for name, one in parameters.items()
                  if not one.requires_grad or any(fnmatch.fnmatchcase(name, each) for each in patterns)}
        if frozen == set(parameters):
            fail("all parameters are frozen")
        return frozen

    @contextlib.contextmanager
    def modes(self):
        """The model is given back in the mode that it came in."""
        before = [(module, module.training) for module in self.whole.modules()]
        try:
            yield
        finally:
            for module, training in before:
                module.training = training

    def set_training(self, training):
        for name, module in self.whole.model.named_modules():
            own = [f"{name}.{each}" if name else each for each, _ in module.named_parameters(recurse=False)]
            is_frozen = own and self.frozen.issuperset(own) or any(fnmatch.fnmatchcase(name, each)
                                                                   for each in self.patterns)
            module.training = training and not is_frozen
        self.whole.training = training

    def in_double(self):
        """The same model in fp64."""
        other = copy.copy(self)
        other.whole = copy.deepcopy(self.whole).double()
        other.precision, other.float = "fp64", torch.float64
        for group in ("parameters", "buffers", "constants"):
            setattr(other, group, {name: double(one) for name, one in getattr(self, group).items()})
        return other

    def beside(self):
        """The same with other weights: behind a layer of zeros all gradients are 0, right or wrong."""
        other = copy.copy(self)
        torch.manual_seed(2)
        other.parameters = {name: one + 0.02 * torch.randn_like(one) if one.is_floating_point() else one
                            for name, one in self.parameters.items()}
        other.buffers = {name: one + 0.02 * torch.rand_like(one) if one.is_floating_point() else one
                         for name, one in self.buffers.items()}  # upwards: a variance stays one
        return other

    def rows(self, count):
        """The example with `count` samples: its first ones, from the start again when it has no more."""
        index = torch.arange(count, device=self.device) % self.samples
        return [tensor.index_select(0, index) for tensor in self.fields.values()]

class Whole(torch.nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch):
        before = dict(self.model.named_buffers(remove_duplicate=False))
        terms = self.loss(self.model, batch)
        for name, one in self.model.named_buffers(remove_duplicate=False):
            if one is not before.get(name):
                fail(f"the model assigns its buffer {name}, so that the old one stays; write {name}.copy_(…)")
        if not isinstance(terms, Terms):
            fail("the loss returned no te.Terms")
        for name, term in terms.terms.items():
            if not isinstance(term.sum, torch.Tensor) or term.sum.dim() != 0:
                fail(f"term {name} is no sum: a tensor without dims is needed; use reduction=\"sum\"")
        return terms

class Graph(torch.nn.Module):
    """What is traced: a pure function of lists of tensors. Buffers that no state_dict has are constants of it."""
    def __init__(self, parts, training):
        super().__init__()
        self.parts, self.is_train = [parts], training  # in a list: its parameters are inputs, not this module's
        for place, constant in enumerate(parts.constants.values()):
            self.register_buffer(f"constant_{place}", constant)

    def terms(self, parameters, buffers, fields):
        parts, = self.parts
        constants = [getattr(self, f"constant_{place}") for place in range(len(parts.constants))]
        tensors = dict(zip([*parts.parameters, *parts.buffers, *parts.constants], [*parameters, *buffers, *constants]))
        kind = AUTOCAST.get(parts.precision)
        casts = torch.autocast(parts.device.type, kind, cache_enabled=False) if kind else contextlib.nullcontext()
        with casts:
            return torch.func.functional_call(parts.whole, {f"model.{name}": one for name, one in tensors.items()},
                                              (dict(zip(parts.fields, fields)),))

    def forward(self, parameters, buffers, *rest):
        parts, = self.parts
        if not self.is_train:
            fields, = rest
            found = self.terms(parameters, buffers, fields)
            sums = [term.sum.to(parts.float) for term in found.terms.values()]
            return (*sums, class_first(found.scores, parts)) if parts.targets else tuple(sums)
        seeds, fields = rest
        buffers = [buffer.clone() for buffer in buffers]
        sums = [term.sum.to(parts.float) for term in self.terms(parameters, buffers, fields).terms.values()]
        total = sum(one * seed for one, seed in zip(sums, seeds))
        return (total, *(one.detach() for one in sums), *(buffer.detach() for buffer in buffers))

def class_first(scores, parts):
    """The scores as tanren's metrics read them: classes along dim 1."""
    return (scores.movedim(-1, 1) if parts.classes_are_last else scores).to(parts.float).contiguous()

def write(parts, folder, tokenizer):
    start = time.monotonic()
    terms = terms_of(parts)
    training, predicting = TrainGraph(parts, terms), PredictGraph(parts)
    check_sums(parts)
    sizes, bounds = common_sizes(training.sizes, predicting.sizes), index_bounds(parts, (training, predicting))
    for graph, name in ((training, "train"), (predicting, "predict")):
        say(f"{parts.name}: compiling {name}.so", start)
        compile_graph(graph, folder, name, parts)
    say(f"{parts.name}: comparing with PyTorch", start)
    train, predict = (Runner(folder / f"{name}.so", parts.device.type) for name in ("train", "predict"))
    fewest = compare(parts, training, train, predict, len(terms), sizes)
    sizes["batch"]["min"] = max(sizes["batch"]["min"], fewest)
    save_file({**parts.parameters, **parts.buffers}, folder / "weights.safetensors", metadata={"format": "pt"})
    for saved in (parts.config, getattr(parts.whole.model, "generation_config", None), tokenizer):
        if hasattr(saved, "save_pretrained"):
            saved.save_pretrained(folder)
    manifest = manifest_of(parts, training, terms, sizes, bounds, folder)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
    say(f"{parts.name}: a package of {sum(one.numel() for one in parts.parameters.values()):,} parameters", start)

def say(text, start):
    print(f"[package] {text} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)

def eager(parts, fields, training, seeds=None):
    """(sums, scores or None, new buffers, gradients) of the model itself."""
    parts.set_training(training)
    parameters = [one.detach().requires_grad_(seeds is not None and name not in parts.frozen)
                  for name, one in parts.parameters.items()]
    buffers = [one.clone() for one in parts.buffers.values()]
    with torch.set_grad_enabled(seeds is not None):
        found = Graph(parts, training).terms(parameters, buffers, fields)
        sums = [term.sum.to(parts.float) for term in found.terms.values()]
    gradients = []
    if seeds is not None:
        wanted = [one for one in parameters if one.requires_grad]
        total = sum(one * seed for one, seed in zip(sums, seeds))
        if not total.requires_grad:
            fail("no term of the loss depends on a parameter")
        check_leaves(total, wanted)
        given = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        gradients = [next(given) if one.requires_grad else None for one in parameters]
    return [one.detach() for one in sums], found, buffers, gradients

def check_leaves(total, wanted):
    """What the loss trains, the package must hold."""
    known, seen, left = {id(one) for one in wanted}, set(), [total.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            fail(f"the loss has a parameter {list(leaf.shape)} that the model does not have, so that it would not be "
                 "trained; make it a part of the model")
        left += [each for each, _ in node.next_functions]

def terms_of(parts):
    try:
        modes = [eager(parts, list(parts.fields.values()), training)[1] for training in (True, False)]
    except ExportError:
        raise
    except Exception as error:
        refuse(error)
    told = [[(name, term.count, float(term.weight)) for name, term in each.terms.items()] for each in modes]
    for name, count, weight in told[0]:
        for word in (name, count):
            if not NAME.fullmatch(word):
                fail(f"term {name}, count {count}: {word!r} is no name of letters, digits and _")
        if not math.isfinite(weight):
            fail(f"term {name} has weight {weight}")
    if told[0] != told[1]:
        fail(f"the terms (name, count, weight) are {told[0]} in training and {told[1]} in evaluation; give the same")
    if any(weight == 0 for *_, weight in told[0]):
        fail(f"a term has weight 0; leave it out: {told[0]}")
    if parts.targets:
        check_scores(parts, modes[1].scores)
    return modes[0].terms

def halves(parts, training):
    """The terms' names, and their sums of the example and of its two halves, without the rounding of 16 bits or, if the
    loss takes it, of 32: in bf16 even a mean of equal halves would be within rounding."""
    def of(these, kind):
        fields = [kind(field) for field in these.fields.values()]
        half = parts.samples // 2
        found = [eager(these, part, training) for part in (fields, [each[:half] for each in fields],
                                                           [each[half:] for each in fields])]
        return list(found[0][1].terms), *([one.double() for one in sums] for sums, *_ in found)
    try:
        return of(parts.in_double(), double), 1e-6  # models cast to 32 bits inside
    except ExportError:
        raise
    except Exception:  # a loss that holds tensors of 32 bits, or a model that does not take a half
        plain = copy.copy(parts)
        plain.precision = "fp64" if parts.precision == "fp64" else "fp32"
        try:
            return of(plain, lambda field: field), 1e-5
        except Exception as error:
            refuse(error)

def add_up(whole, left, right, most):
    return abs(whole - left - right) <= most * max(abs(whole), abs(left) + abs(right))

def check_sums(parts):
    """The two halves of the example must add up to it."""
    (names, *sums), most = halves(parts, training=False)
    for name, whole, left, right in zip(names, *sums):
        if not torch.isfinite(whole):
            fail(f"term {name} of the example is {whole.item()}")
        if not add_up(whole, left, right, most):
            fail(f"term {name} is no sum over samples: {left.item():.6g} of the example's first half and "
                 f"{right.item():.6g} of its second make {(left + right).item():.6g}, the example has "
                 f"{whole.item():.6g}; use reduction=\"sum\"")

def check_scores(parts, scores):
    targets = parts.fields[parts.targets]
    if not isinstance(scores, torch.Tensor) or scores.dim() == 0 or scores.shape[0] != parts.samples:
        fail("metrics need scores [samples, …]: te.Terms(scores, …)")
    has_classes = scores.dim() == targets.dim() + 1
    if has_classes and scores.dim() > 2 and scores.shape[1:-1] == targets.shape[1:] == scores.shape[2:]:
        fail(f"scores {list(scores.shape)} may have their classes along dim 1 or along the last; give an example with "
             "another size")
    parts.classes_are_last = has_classes and scores.dim() > 2 and scores.shape[1:-1] == targets.shape[1:]
    parts.classes = scores.shape[-1 if parts.classes_are_last else 1] if has_classes else 0

def traced(parts, training, arguments):
    parts.set_training(training)
    sizes = {name: Dim(name, min=least, max=most) for name, (least, most) in parts.ranges.items()}
    fields = [{dim: sizes[name] for (field, dim), name in parts.dims.items() if field == each} for each in parts.fields]
    shapes = [*[[None] * len(group) for group in arguments[:-1]], fields]
    for _ in range(4):
        try:
            return trace(Graph(parts, training), tuple(arguments), dynamic_shapes={"parameters": shapes[0],
                         "buffers": shapes[1], "rest": tuple(shapes[2:])}, strict=False)
        except ExportError:
            raise
        except torch._dynamo.exc.UserError as error:
            if "Suggested fixes" not in str(error):
                refuse(error)
            shapes[-1] = refined(parts, str(error), shapes[-1])
        except Exception as error:
            refuse(error)
    fail("the sizes of fields depend on each other in a way that torch.export does not settle")

def check_changes(parts, program):
    changed = [spec.target for spec in program.graph_signature.output_specs if spec.kind == OutputKind.BUFFER_MUTATION]
    if changed:
        names = list(parts.constants)
        told = [names[int(each.rpartition("_")[2])] if each.startswith("constant_") else each for each in changed]
        fail(f"the model changes {', '.join(told)}, which its state_dict does not have; make it a persistent buffer")

def refined(parts, message, shapes):
    from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes
    fixes = message.partition("Suggested fixes:")[2].partition("\n\n")[0]
    shapes = refine_dynamic_shapes_from_suggested_fixes(f"Suggested fixes:{fixes}", shapes)
    for field, sizes in zip(parts.fields, shapes):
        for dim, size in sizes.items():
            if isinstance(size, int):
                fail(f"the model takes only {size} at {field}.{dim}, the {parts.dims[field, dim]} size, "
                     "which should vary")
    return shapes

def first_line(text):
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "")

def refuse(error):
    """The place in the user's code, then torch's first line."""
    own = (os.path.dirname(torch.__file__) + os.sep, os.path.abspath(__file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not os.path.abspath(frame.filename).startswith(own) and os.path.exists(frame.filename)]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: `{frames[-1].line}`" if frames else "the model"
    why = first_line(error)
    if "data-dependent" in str(error) or "DataDependent" in type(error).__name__:
        why = f"control flow depends on a tensor's values, which a graph cannot; use torch.where or torch.cond ({why})"
    raise ExportError(f"[package] {place}: {type(error).__name__}: {why}") from error

class TracedGraph:
    """A GraphModule over flat lists of tensors, and the sizes of its fields by name."""
    def __init__(self, parts, program, arguments, outputs=None):
        self.arguments = [tensor for group in arguments for tensor in group]
        self.sizes = sizes_of(program, parts)
        module, graph = program.graph_module, program.graph_module.graph
        constants = {**program.state_dict, **program.constants}
        places = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        for node in list(graph.nodes):
            if node.op == "placeholder" and places[node.name].kind != InputKind.USER_INPUT:
                name = "held_" + node.name
                module.register_buffer(name, constants[places[node.name].target].detach())
                with graph.inserting_before(node):
                    held = graph.get_attr(name)
                held.meta = node.meta
                node.replace_all_uses_with(held)
                graph.erase_node(node)
        last, = (node for node in graph.nodes if node.op == "output")
        last.args = (tuple(owned(graph, last, outputs if outputs is not None else last.args[0])),)
        graph.eliminate_dead_code()
        module.recompile()
        self.module = module
        self.placeholders = [node for node in graph.nodes if node.op == "placeholder"]

def owned(graph, last, outputs):
    """Each output contiguous and of its own memory: no input, no other output."""
    seen = set()
    for node in outputs:
        source = node
        while is_view(source):
            source = source.args[0]
        if source in seen or source.op != "call_function" or not node.meta["val"].is_contiguous():
            with graph.inserting_before(last):
                copy_ = graph.call_function(torch.ops.aten.clone.default, (node,),
                                            {"memory_format": torch.contiguous_format})
            copy_.meta["val"] = torch.empty_like(node.meta["val"], memory_format=torch.contiguous_format)
            node = copy_
        seen.add(source)
        yield node

def is_view(node):
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    first = target._schema.arguments[0].alias_info if target._schema.arguments else None
    return first is not None and not first.is_write

def sizes_of(program, parts):
    """{"tokens": {"min": …, "max": …, "multiple": …}} as tracing found them."""
    found = {}
    users = [node for node in program.graph.nodes if node.op == "placeholder"
             and node.name in program.graph_signature.user_inputs][-len(parts.fields):]
    for (field, dim), name in parts.dims.items():
        size = users[list(parts.fields).index(field)].meta["val"].shape[dim]
        if isinstance(size, int):
            fail(f"the model holds {field}.{dim} at {size}; leave it out of dynamic=" if name != "batch" else
                 f"the model holds the number of samples at {size}; it must take any")
        multiple, symbols = size.node.expr.as_coeff_Mul()
        if not symbols.is_Symbol:
            fail(f"{field}.{dim} must be {size}, which a package cannot say")
        span = program.range_constraints[symbols]
        ends = [int(multiple) * int(min(end, UNBOUNDED)) for end in (span.lower, span.upper)]
        found[name] = size_within(max(ends[0], parts.ranges[name][0]), min(ends[1], parts.ranges[name][1]),
                                  int(multiple))
    return found

def size_within(least, most, multiple):
    """From 1 on, with ends that are multiples."""
    return {"min": -(-max(least, 1) // multiple) * multiple, "max": most // multiple * multiple, "multiple": multiple}

def common_sizes(one, other):
    together = {}
    for name, size in one.items():
        together[name] = size_within(max(size["min"], other[name]["min"]), min(size["max"], other[name]["max"]),
                                     math.lcm(size["multiple"], other[name]["multiple"]))
    return together

class TrainGraph(TracedGraph):
    def __init__(self, parts, terms):
        fields = list(parts.fields.values())
        seeds = [torch.full((), term.weight / parts.samples, dtype=parts.float, device=parts.device)
                 for term in terms.values()]
        gradients = eager(parts, fields, True, seeds)[3]
        self.has_gradient = [one is not None for one in gradients]
        parameters = [one.detach().requires_grad_(has)
                      for one, has in zip(parts.parameters.values(), self.has_gradient)]
        arguments = [parameters, list(parts.buffers.values()), seeds, fields]
        program = traced(parts, True, arguments)
        simplify(program)
        self.couples = couples_samples(program, parts)
        try:
            # torch.export.experimental._export_forward_backward, without its decompositions: the one of CPU attention
            # is for inference, and gives the backward a wrong logsumexp.
            joint = _decompose_exported_program(program, cia_to_decomp={}, python_decomp_table={}, joint_loss_index=0,
                                                decompose_custom_triton_ops=False)
        except Exception as error:
            refuse(error)
        check_changes(parts, joint)
        last, = (node for node in joint.graph.nodes if node.op == "output")
        produced = list(last.args[0])[1:]
        sums, rest = produced[:len(terms)], produced[len(terms):]
        buffers, given = rest[:len(parts.buffers)], rest[len(parts.buffers):]
        if len(given) != sum(self.has_gradient):
            fail(f"{sum(self.has_gradient)} parameters have gradients, the graph has {len(given)}")
        self.changed = [source_of(node).op != "placeholder" for node in buffers]
        outputs = [*sums, *(node for node, changed in zip(buffers, self.changed) if changed), *given]
        self.output_count = len(outputs)
        super().__init__(parts, joint, [[one.detach() for one in parameters], *arguments[1:]], outputs)
        self.draws = first_random(joint)

class PredictGraph(TracedGraph):
    def __init__(self, parts):
        arguments = [list(parts.parameters.values()), list(parts.buffers.values()), list(parts.fields.values())]
        with torch.no_grad():
            program = traced(parts, False, arguments).run_decompositions({})
        check_changes(parts, program)
        super().__init__(parts, program, arguments)

def simplify(program):
    for module in program.graph_module.modules():
        # Tracing once more may give attention's output other strides, which view would not take.
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
            node.target = torch.ops.aten.reshape.default
        # Dropout of nothing would still draw.
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default):
            if node.args[1] == 0:
                node.replace_all_uses_with(node.args[0])
                module.graph.erase_node(node)

def source_of(node):
    copies = (torch.ops.aten.clone.default, torch.ops.aten.alias.default, torch.ops.aten.detach.default)
    while node.op == "call_function" and node.target in copies:
        node = node.args[0]
    return node

def argument(node, name):
    """The argument of an operator by its name in the schema, or its default."""
    for place, each in enumerate(node.target._schema.arguments):
        if each.name == name:
            return node.args[place] if place < len(node.args) else node.kwargs.get(name, each.default_value)
    return None

def operators(program):
    for module in program.graph_module.modules():
        for node in module.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload):
                yield node

def draws(node):
    """Operators of dropout have the tag at a probability of 0, too, and in eval mode."""
    return (torch.Tag.nondeterministic_seeded in node.target.tags and argument(node, "train") is not False and
            all(argument(node, name) != 0 for name in ("p", "dropout_p", "dropout")))

def first_random(program):
    return next((node.target._schema.name for node in operators(program) if draws(node)), "")

class NoDropout(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        name, kwargs = getattr(function, "__name__", ""), dict(kwargs or {})
        if name.rstrip("_") in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout",
                                "feature_alpha_dropout"):
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        return function(*args, **kwargs)

def couples_samples(program, parts):
    """Whether training results of a sample depend on the others: batch norm, or sums that do not add up without
    dropout. What draws other numbers is taken to couple them."""
    if any("batch_norm" in node.target._schema.name and argument(node, "training") for node in operators(program)):
        return True
    with NoDropout():
        (_, *sums), most = halves(parts, training=True)
        (_, *again), _ = halves(parts, training=True)
    repeats = all(torch.equal(one, other) for one, other in zip(sum(sums, []), sum(again, [])))
    return not repeats or not all(add_up(*three, most) for three in zip(*sums))

# What moves numbers and keeps them.
MOVES = {"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "slice", "select", "expand", "permute", "transpose",
         "t", "clone", "alias", "detach", "_to_copy", "flatten", "contiguous", "lift_fresh_copy"}

def indices_of(node):
    """Of an operator that reads tables: each tensor of indices, with the least and largest that it may hold, and the
    number beside them that it skips, or None."""
    name = node.target._schema.name.removeprefix("aten::")
    rows = lambda table, dim: table.meta["val"].shape[dim]
    if name == "embedding":
        yield argument(node, "indices"), 0, rows(node.args[0], 0) - 1, None
    elif name in ("gather", "index_select", "scatter", "scatter_add"):
        yield argument(node, "index"), 0, rows(node.args[0], argument(node, "dim")) - 1, None
    elif name in ("index", "_unsafe_index", "index_put"):
        for dim, index in enumerate(argument(node, "indices")):
            if index is not None and index.meta["val"].dtype != torch.bool:
                yield index, -rows(node.args[0], dim), rows(node.args[0], dim) - 1, None
    elif name in ("nll_loss_forward", "nll_loss2d_forward"):
        classes = rows(node.args[0], min(1, node.args[0].meta["val"].dim() - 1))
        yield argument(node, "target"), 0, classes - 1, argument(node, "ignore_index")

def index_bounds(parts, graphs):
    """{field: (least, most, ignored or None)} of fields whose numbers are indices into tables."""
    bounds, hidden = {}, set()
    for graph in graphs:
        field_of = dict(zip(graph.placeholders[-len(parts.fields):], parts.fields))
        for node in graph.module.graph.nodes:
            if not isinstance(node.target, torch._ops.OpOverload):
                continue
            for index, least, most, ignored in indices_of(node):
                source = index
                while isinstance(source.target, torch._ops.OpOverload) and \
                        source.target._schema.name.removeprefix("aten::") in MOVES:
                    source = source.args[0]
                if source in field_of and isinstance(most, int):
                    old = bounds.get(field_of[source], (least, most, ignored))
                    bounds[field_of[source]] = (max(old[0], least), min(old[1], most),
                                                ignored if ignored == old[2] else None)
                else:
                    hidden |= {field_of[each] for each in sources(source) if each in field_of}
    hidden = {name for name in hidden - {*bounds, *parts.values} if not parts.fields[name].is_floating_point()}
    for name in sorted(hidden):
        print(f"[package] indices are computed from {name}; if its numbers must be in bounds, say "
              f"values={{\"{name}\": (least, largest)}}", file=sys.stderr)
    if parts.classes and parts.metrics == ["classes"] and not parts.fields[parts.targets].is_floating_point():
        bounds.setdefault(parts.targets, (0, parts.classes - 1, -100))
    for name, span in parts.values.items():
        bounds[name] = (*span, bounds[name][2] if name in bounds else None)
    for name, (least, most, ignored) in bounds.items():
        asked = parts.fields[name] if ignored is None else parts.fields[name][parts.fields[name] != ignored]
        low, high = (int(asked.min()), int(asked.max())) if asked.numel() else (least, most)
        if not least <= low <= high <= most:
            fail(f"{name} of the example holds {low} to {high}, not within {least} to {most}")
    return bounds

def sources(node):
    seen, left = set(), [node]
    while left:
        each = left.pop()
        if each not in seen and isinstance(each.meta.get("val"), torch.Tensor):  # not what gives sizes alone
            seen.add(each)
            left += each.all_input_nodes
    return seen

def compile_graph(graph, folder, name, parts):
    options = dict(OPTIONS)
    if parts.device.type == "cpu":
        options.pop("aot_inductor.embed_kernel_binary")
    for module in graph.module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # each kernel call would parse these lines of this machine's files
    try:
        with torch.no_grad(), deterministic():
            files = torch._inductor.aot_compile(graph.module, tuple(graph.arguments), options=options)
    except Exception as error:
        raise ExportError(f"[package] {name}.so: {type(error).__name__}: {first_line(error)}") from error
    files = [pathlib.Path(file) for file in files if isinstance(file, (str, os.PathLike))]
    library, = (file for file in files if file.suffix == ".so")
    shutil.copyfile(library, folder / f"{name}.so")
    for file in files:
        if file.suffix == ".json" and not file.stem.endswith("_metadata"):
            # Spaces at the end: the checksum below is that of long files.
            (folder / f"{name}.json").write_text(file.read_text().ljust(256))
        if file.name.endswith("wrapper_metadata.json") and "INVALID" in file.read_text():
            fail("Inductor found no vector instructions of this processor")

@contextlib.contextmanager
def deterministic():
    """Inductor adds up gradients of embeddings and indices atomically, in another order each time. Within this scope
    it calls torch's kernels for them. If CI is set, it takes that for a mistake of its own developers."""
    from torch._inductor.decomposition import decompositions
    embedding = torch.ops.aten.embedding_dense_backward.default
    own = decompositions.pop(embedding)
    in_ci = os.environ.pop("CI", None)
    is_on, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        decompositions[embedding] = own
        if in_ci is not None:
            os.environ["CI"] = in_ci
        torch.use_deterministic_algorithms(is_on, warn_only=warns)
        torch.utils.deterministic.fill_uninitialized_memory = fills

class Runner:
    """The compiled code as libtorch runs it from C++."""
    def __init__(self, library, device):
        folder = pathlib.Path(torch.__file__).parent / "lib"
        for name in ["libc10.so", "libtorch_cpu.so"] + ["libc10_cuda.so", "libtorch_cuda.so"] * (device == "cuda"):
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        make = torch._C._aoti.AOTIModelContainerRunnerCpu
        self.runner = (make(str(library), 1) if device == "cpu" else
                       torch._C._aoti.AOTIModelContainerRunnerCuda(str(library), 1, "cuda"))

    def __call__(self, *tensors):
        with torch.no_grad():
            return self.runner.run(list(tensors))

def compare(parts, training, train, predict, terms, sizes):
    """What the compiled graphs return, against the model, at 1, 2, 3 and the example's samples, and beside the weights.
    Returns the fewest samples that training takes."""
    fewest = 1

    def trained(these, fields, seeds):
        sums, _, changed, gradients = eager(these, fields, True, seeds)
        return [*sums, *(one for one, is_new in zip(changed, training.changed) if is_new),
                *(one for one in gradients if one is not None)]

    def predicted(these, fields, _):
        sums, found, _, _ = eager(these, fields, False)
        return [*sums, class_first(found.scores, these).detach()] if parts.targets else sums

    span = sizes["batch"]
    counts = sorted({each for each in (1, 2, 3, parts.samples) if span["min"] <= each <= span["max"]})
    cases = [(parts, fields, f"{count} samples") for count in counts
             for fields in [parts.rows(count), *(other_sizes(parts, count, sizes) if count == 2 else [])]]
    cases.append((parts.beside(), parts.rows(counts[-1]), f"{counts[-1]} samples, beside the weights"))
    for these, fields, told in cases:
        count = fields[0].shape[0]
        seeds = [torch.full((), (1 + place) / count, dtype=parts.float, device=parts.device) for place in range(terms)]
        weights = [*these.parameters.values(), *these.buffers.values()]
        try:
            predicted(these, fields, seeds)
        except Exception as error:
            shapes = {name: list(field.shape) for name, field in zip(parts.fields, fields)}
            fail(f"the model does not take {shapes}, which dynamic and ranges allow: {first_line(error)}")
        check_close(these, predicted, fields, seeds, predict(*weights, *fields), f"prediction at {told}")
        given, told = [*weights, *seeds, *fields], f"training at {told}"
        try:
            trained(these, fields, seeds)
        except ValueError as error:  # batch norm of one sample
            if count > 1:
                raise
            print(f"[package] training takes at least 2 samples: {first_line(error)}", file=sys.stderr)
            fewest = 2
            continue
        if training.draws:
            check_close(these, trained, fields, seeds, training.module, told, given)
            if these is not parts or count < counts[-1]:  # once at the most samples, beside the weights
                check_draws(these, fields, given, train, terms, told)
            if these is not parts:
                check_slope(these, training, given, train, terms, told)
        else:
            check_close(these, trained, fields, seeds, train(*given), told)
        check_repeats(given, train, told)
    return fewest

def other_sizes(parts, count, sizes):
    """The same samples with every named size beside that of the samples at its least, at half, and at twice or its
    largest."""
    if set(parts.dims.values()) == {"batch"}:
        return []
    results = []
    for factor in (0, 0.5, 2):
        fields = parts.rows(count)
        for (name, dim), size in parts.dims.items():
            place, span = list(parts.fields).index(name), sizes[size]
            old = fields[place].shape[dim]
            if size != "batch":
                new = max(span["min"], min(span["max"], int(old * factor) // span["multiple"] * span["multiple"]))
                index = torch.arange(new, device=parts.device) % old
                fields[place] = fields[place].index_select(dim, index)
        results.append(fields)
    return results

def check_close(parts, model, fields, seeds, given, what, inputs=None):
    """`given`: outputs, or with `inputs` a module to run on them that draws the numbers that the model draws."""
    torch.manual_seed(0)
    wanted = model(parts, fields, seeds)
    if inputs is not None:
        torch.manual_seed(0)
        given = given(*inputs)
    if len(wanted) != len(given):
        fail(f"{what}: {len(given)} outputs instead of {len(wanted)}")
    exact = None
    for place, (one, other) in enumerate(zip(wanted, given)):
        if one.shape != other.shape or one.dtype != other.dtype or inputs is None and not other.is_contiguous():
            fail(f"{what}: output {place} is {other.dtype}{list(other.shape)} instead of {one.dtype}{list(one.shape)}")
        if distance(one, other) <= parts.tolerance * distance(one, 0 * one):
            continue
        if exact is None:  # a bias before a batch norm has only rounding for a gradient
            torch.manual_seed(0)
            exact = model(parts.in_double(), [double(field) for field in fields], [double(seed) for seed in seeds])
        off, own = distance(other, exact[place]), distance(one, exact[place])
        if not off <= ROUNDING * own + 1e-12:
            fail(f"{what}: output {place} is {off:.3g} away from fp64, PyTorch in {parts.precision} is {own:.3g}, of "
                 f"{distance(exact[place], 0 * exact[place]):.3g}")

def distance(one, other):
    return float((one.double() - other.double()).norm())

def double(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor

def check_draws(parts, fields, given, train, terms, told):
    """Compiled code draws other numbers than the model: the means of the terms over draws must agree."""
    draws = 16
    ours = torch.stack([torch.stack(list(train(*given)[:terms])) for _ in range(draws)]).double()
    theirs = torch.stack([torch.stack(eager(parts, fields, True)[0]) for _ in range(draws)]).double()
    spread = ((ours.var(0) + theirs.var(0)) / draws).sqrt() + parts.tolerance * theirs.mean(0).abs()
    if not bool(((ours.mean(0) - theirs.mean(0)).abs() <= 6 * spread).all()):
        fail(f"{told}: over {draws} draws the terms are {ours.mean(0).tolist()}, PyTorch's "
             f"{theirs.mean(0).tolist()}")

# Of a step relative to the weights: its size, the rounding of a sum of terms, and how far off the slope may be.
SLOPES = {"fp64": (1e-6, 1e-14, 1e-4), "fp32": (1e-3, 1e-6, 3e-2), "bf16": (3e-2, 4e-3, 0.2), "fp16": (1e-2, 1e-3, 0.1)}

def check_slope(parts, training, given, train, terms, told):
    """Gradients of compiled code that draws, against the differences of its own terms at the same draw."""
    step, rounding, most = SLOPES[parts.precision]
    places = [place for place, has in enumerate(training.has_gradient) if has]
    seeds = given[len(parts.parameters) + len(parts.buffers):][:terms]
    slope = expected = noise = 0.0
    for draw in range(4):
        def run(by, way=None):
            moved = list(given)
            for place, one in zip(places, way or []):
                moved[place] = given[place] + by * one
            torch.manual_seed(draw)
            found = train(*moved)
            return sum(float(one) * float(seed) for one, seed in zip(found, seeds)), found[-len(places):]

        total, gradients = run(0)
        norms = [float(one.double().norm()) for one in gradients]
        scales = [max(float(given[place].double().norm()), 0.01 * given[place].numel() ** 0.5) for place in places]
        # Every parameter by the same part of itself, up its gradient.
        way = [one * (scale / norm) if norm > 0 else 0 * one for one, scale, norm in zip(gradients, scales, norms)]
        grows = sum(norm * scale for norm, scale in zip(norms, scales))
        # In deep models a step must be smaller: the terms change by a twentieth at most.
        by = min(step, 0.05 * max(abs(total) / grows, 1e-3)) if grows > 0 else step
        wide, narrow = ((run(each, way)[0] - run(-each, way)[0]) / (2 * each) for each in (by, by / 2))
        slope, expected, noise = slope + (4 * narrow - wide) / 3, expected + grows, noise + rounding * abs(total) / by
    if not abs(slope - expected) <= most * expected + noise:
        fail(f"{told}: up the gradients the terms grow by {slope:.6g}, the gradients say {expected:.6g}")

def check_repeats(given, train, told):
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        results.append(train(*given))
    for place, (one, other) in enumerate(zip(*results)):
        if not torch.equal(one, other):
            fail(f"{told}: output {place} differs from one run to the next, from one seed, or is NaN")

def manifest_of(parts, training, terms, sizes, bounds, folder):
    places = iter(range(len(terms), training.output_count))
    word = lambda tensor: str(tensor.dtype).removeprefix("torch.")
    buffers = [{"name": name, "dtype": word(one), "sizes": list(one.shape), "output": next(places) if changed else None}
               for (name, one), changed in zip(parts.buffers.items(), training.changed)]
    parameters = [{"name": name, "dtype": word(one), "sizes": list(one.shape),
                   "gradient": next(places) if has else None, "frozen": name in parts.frozen}
                  for (name, one), has in zip(parts.parameters.items(), training.has_gradient)]
    fields = [{"name": name, "dtype": word(one),
               "sizes": [parts.dims.get((name, dim), size) for dim, size in enumerate(one.shape)],
               "values": list(bounds[name][:2]) if name in bounds else None,
               "ignored": bounds[name][2] if name in bounds else None}
              for name, one in parts.fields.items()]
    return {
        "format": "tanren.package", "version": 1, "torch": VERSION, "device": parts.device.type,
        "machine": platform.machine(), "processor_flags": processor_flags() if parts.device.type == "cpu" else [],
        "precision": parts.precision, "class": parts.name, "multiply_adds": multiply_adds(parts),
        "draws": training.draws, "couples_samples": training.couples,
        "files": {file.name: xxh3(file.read_bytes()) for file in sorted(folder.iterdir())
                  if file.name in ("train.so", "predict.so", "train.json", "predict.json")},
        "sizes": sizes, "parameters": parameters, "tied": parts.tied, "buffers": buffers, "fields": fields,
        "terms": [{"name": name, "weight": float(term.weight), "count": term.count} for name, term in terms.items()],
        "outputs": training.output_count, "targets": parts.targets, "metrics": parts.metrics,
        "classes": parts.classes,
    }

def multiply_adds(parts):
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as counter:
        eager(parts, list(parts.fields.values()), False)
    return counter.get_total_flops() // 2 // parts.samples

def processor_flags():
    """Flags of this processor that a compiler uses with -march=native, by the names of /proc/cpuinfo."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    text = pathlib.Path("/proc/cpuinfo").read_text()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = line.group(1).split() if line else []
    if platform.machine() not in ("x86_64", "AMD64"):
        return flags
    macros = subprocess.run([get_cpp_compiler(), "-march=native", "-dM", "-E", "-x", "c++", os.devnull],
                            capture_output=True, text=True, check=True).stdout
    plain = lambda name: name.lower().replace("_", "")
    used = {plain(name) for name in re.findall(r"^#define __(\w+?)__ 1$", macros, re.MULTILINE)}
    other = {"pni": "sse3", "abm": "lzcnt", "sha_ni": "sha", "cx16": "gcchavesynccompareandswap16",
             "3dnowprefetch": "prfchw"}
    return [flag for flag in flags if plain(other.get(flag, flag)) in used]

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
PRIMES = (0xC2B2AE3D, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x85EBCA77,
          0x27D4EB2F165667C5, 0x9E3779B1)

def xxh3(data):
    """XXH3 64, seed 0, of more than 240 bytes. Sums within a block of 1024 bytes are torch's, since Python is slow."""
    assert len(data) > 240
    mask, secret = 2**64 - 1, SECRET
    words = lambda raw: torch.frombuffer(bytearray(raw), dtype=torch.int64)
    def added(stripes, keys):  # [blocks, stripes, 8] → what they add to the 8 sums of their block
        mixed = stripes ^ keys
        low, high = mixed & 0xFFFFFFFF, (mixed >> 32) & 0xFFFFFFFF
        return (low * high + stripes.unflatten(-1, (4, 2)).flip(-1).flatten(-2)).sum(-2).tolist()
    keys = torch.stack([words(secret[8 * each:8 * each + 64]) for each in range(16)])
    sums = list(PRIMES)
    blocks = (len(data) - 1) // 1024
    def take(more):
        sums[:] = [(one + other) & mask for one, other in zip(sums, more)]
    def word(at):
        return int.from_bytes(secret[at:at + 8], "little")
    if blocks:
        for more in added(words(data[:1024 * blocks]).view(blocks, 16, 8), keys):
            take(more)
            sums[:] = [((one ^ (one >> 47) ^ word(128 + 8 * place)) * 0x9E3779B1) & mask
                       for place, one in enumerate(sums)]
    stripes = (len(data) - 1 - 1024 * blocks) // 64
    if stripes:
        start = 1024 * blocks
        take(added(words(data[start:start + 64 * stripes]).view(1, stripes, 8), keys[:stripes])[0])
    take(added(words(data[-64:]).view(1, 1, 8), words(secret[121:185]))[0])
    result = len(data) * 0x9E3779B185EBCA87
    for pair in range(4):
        product = (sums[2 * pair] ^ word(11 + 16 * pair)) * (sums[2 * pair + 1] ^ word(19 + 16 * pair))
        result += (product & mask) ^ (product >> 64)
    result &= mask
    result = ((result ^ (result >> 37)) * 0x165667919E3779F9) & mask
    return f"{result ^ (result >> 32):016x}"
