#!/usr/bin/env python3
"""Checks that models of the real packages survive the way through tanren and back.

    check_models.py TANREN_BINARY EMPTY_FOLDER [NAME...]

For each model: the package saves it, and `tanren run` and PyTorch each train it for 20 steps on the
same batches; the losses must agree to 1e-4. Then `tanren convert` writes the trained model as a
folder that the package opens. Its loss must equal that of `tanren eval` on the whole model to 1e-5,
and its outputs must equal those of PyTorch's training to 1e-5 of their size.

Called by tests/interop/run, which provides the packages.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import torchvision
import transformers
from safetensors.torch import save_file
from torch import nn

STEPS, BATCH, SAMPLES = 20, 4, 20
TOKENS, VOCAB, CLASSES, IGNORED = 12, 40, 3, -100

CONFIG = """
[run]
steps = {steps}
seed = 1
threads = 1
[model]
{model}
[data.train]
kind = "tensors"
path = "data.safetensors"
[data.eval]
kind = "tensors"
path = "data.safetensors"
[data]
shuffle = false
[batch]
global_batch = {batch}
[precision]
mode = "{precision}"
[optimizer]
{optimizer}
[checkpoint]
keep = 1
[evaluate]
metrics = ["accuracy"]
"""
ADAMW = 'kind = "adamw"\nlearning_rate = 1e-3\nweight_decay = 0.01'
SGD = 'kind = "sgd"\nlearning_rate = 1e-2\nmomentum = 0.9\nweight_decay = 1e-3'


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-3)


def token_data(language_model=False):
    inputs = torch.randint(5, VOCAB, (SAMPLES, TOKENS))
    lengths = torch.randint(4, TOKENS + 1, (SAMPLES,))
    mask = (torch.arange(TOKENS) < lengths[:, None]).long()
    labels = torch.randint(CLASSES, (SAMPLES,))
    if language_model:
        labels = torch.where(torch.rand(SAMPLES, TOKENS) < 0.3, inputs, torch.tensor(IGNORED))
        labels[:, 0] = inputs[:, 0]
    inputs[:, -1] = torch.where(mask[:, -1] == 1, inputs[:, -1], 0)
    inputs[0, 0] = VOCAB - 1
    return {"inputs": inputs, "attention_mask": mask, "labels": labels}


class Bert:
    config, optimizer = ADAMW, staticmethod(adamw)
    opened = transformers.BertForSequenceClassification

    def make(self, folder):
        sizes = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        sizes |= dict(intermediate_size=32, max_position_embeddings=16, num_labels=CLASSES)
        off = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = self.opened(transformers.BertConfig(**sizes, **off))
        model.save_pretrained(folder / "from")
        self.model_section = f'from_hf = "{folder / "from"}"\ndropout = 0.0'
        return model

    def data(self):
        return token_data()

    def outputs(self, model, batch):
        return model(batch["inputs"], attention_mask=batch["attention_mask"]).logits

    def open(self, folder):
        model, info = self.opened.from_pretrained(folder, output_loading_info=True)
        left = {key: info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
        expect(not any(left.values()), f"{type(self).__name__}: from_pretrained says {left}")
        return model


class BertMasked(Bert):
    opened = transformers.BertForMaskedLM

    def make(self, folder):
        model = super().make(folder)
        self.model_section += '\ntask = "masked_lm"'
        return model

    def data(self):
        return token_data(language_model=True)


class Gpt2(Bert):
    opened = transformers.GPT2LMHeadModel

    def make(self, folder):
        sizes = dict(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=16)
        off = dict(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
        ends = dict(bos_token_id=None, eos_token_id=None)
        model = self.opened(transformers.GPT2Config(**sizes, **off, **ends))
        model.save_pretrained(folder / "from")
        self.model_section = f'from_hf = "{folder / "from"}"\ndropout = 0.0'
        return model

    def data(self):
        tokens = torch.randint(VOCAB, (SAMPLES, TOKENS + 1))
        return {"inputs": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}

    def outputs(self, model, batch):
        return model(batch["inputs"]).logits


class Vision:
    # fp32 would be too sensitive to rounding: with batch norm over four samples of 1 x 1, PyTorch's
    # own losses in fp32 and fp64 differ by a hundredth after three steps.
    precision = "fp64"
    config, optimizer = SGD, staticmethod(sgd)

    def build(self):
        raise NotImplementedError

    def make(self, folder):
        model = self.build()
        torch.save(model.state_dict(), folder / "from.pth")
        kind, size = self.name
        self.model_section = f'kind = "{kind}"\nsize = "{size}"\ninit_from = "from.pth"'
        return model

    def data(self):
        return {
            "inputs": torch.randn(SAMPLES, 3, 32, 32),
            "labels": torch.randint(CLASSES, (SAMPLES,)),
        }

    def outputs(self, model, batch):
        return model(batch["inputs"])

    def open(self, folder):
        model = self.build()
        model.load_state_dict(torch.load(folder / "model.pth", weights_only=True))
        return model.eval()


class Resnet(Vision):
    name = ("resnet", "resnet18")

    def build(self):
        return torchvision.models.resnet18(num_classes=CLASSES)


class Vgg(Vision):
    name = ("vgg", "vgg11_bn")

    def build(self):
        return torchvision.models.vgg11_bn(num_classes=CLASSES, dropout=0.0)

    def make(self, folder):
        model = super().make(folder)
        self.model_section += "\ndropout = 0.0"
        return model


class LstmModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 8)
        self.lstm = nn.LSTM(8, 10, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(20, CLASSES)

    def forward(self, inputs, mask):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(inputs), mask.sum(1), batch_first=True, enforce_sorted=False
        )
        state = self.lstm(packed)[1][0]
        return self.head(torch.cat(list(state[-2:]), dim=1))


class Lstm(Vision):
    precision = "fp32"
    config, optimizer = ADAMW, staticmethod(adamw)

    def build(self):
        return LstmModule()

    def make(self, folder):
        model = self.build()
        torch.save(model.state_dict(), folder / "from.pth")
        self.model_section = (
            'kind = "lstm"\nhidden_size = 10\nembedding_size = 8\nnum_layers = 2\n'
            'bidirectional = true\ninit_from = "from.pth"'
        )
        return model

    def data(self):
        return token_data()

    def outputs(self, model, batch):
        return model(batch["inputs"], batch["attention_mask"])


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] models: {what}")


def loss_of(outputs, labels):
    return nn.functional.cross_entropy(
        outputs.flatten(0, -2), labels.flatten(), ignore_index=IGNORED
    )


def trained_by_pytorch(case, model, data):
    """Trains 20 steps on consecutive batches; returns the loss of each."""
    optimizer = case.optimizer(model)
    losses = []
    model.train()
    for step in range(STEPS):
        begin = step * BATCH % SAMPLES
        batch = {name: field[begin : begin + BATCH] for name, field in data.items()}
        loss = loss_of(case.outputs(model, batch), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def tanren(binary, *arguments):
    result = subprocess.run([binary, *arguments], check=False, capture_output=True, text=True)
    expect(result.returncode == 0, f"tanren {arguments}: {result.stderr}{result.stdout}")
    return result.stdout


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def check(case, binary, folder):
    name = type(case).__name__
    folder.mkdir()
    torch.manual_seed(11)
    model = case.make(folder)
    data = case.data()
    save_file(data, folder / "data.safetensors")
    precision = getattr(case, "precision", "fp32")
    if precision == "fp64":
        model.double()
        data = {name: f.double() if f.is_floating_point() else f for name, f in data.items()}
    config = CONFIG.format(
        steps=STEPS,
        batch=BATCH,
        model=case.model_section,
        optimizer=case.config,
        precision=precision,
    )
    (folder / "run.toml").write_text(config)
    tanren(binary, "run", folder / "run.toml", "--out", folder / "run", "--quiet")
    log = [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]
    ours = torch.tensor([line["loss"] for line in log if "loss" in line], dtype=torch.double)
    theirs = torch.tensor(trained_by_pytorch(case, model, data), dtype=torch.double)
    losses = ((ours - theirs).abs() / theirs.abs()).max().item()
    expect(len(ours) == STEPS and losses < 1e-4, f"{name}: losses differ by {losses:.1e}")

    tanren(binary, "convert", folder / "run", folder / "python", "--quiet")
    opened = case.open(folder / "python")
    if precision == "fp64":
        opened.double()
    said = tanren(
        binary, "eval", folder / "run/model.tanren.safetensors", folder / "data.safetensors", "--json"
    )
    with torch.no_grad():
        outputs = case.outputs(opened, data)
        trained = relative(outputs, case.outputs(model, data))
        loss = loss_of(outputs, data["labels"]).item()
    evaluated = abs(json.loads(said)["evaluate.loss"] - loss) / loss
    expect(evaluated < 1e-5, f"{name}: tanren's evaluation and Python's differ by {evaluated:.1e}")
    expect(trained < 1e-5, f"{name}: outputs after {STEPS} steps differ by {trained:.1e}")
    shutil.rmtree(folder)
    print(
        f"[interop] {name}: {STEPS} losses within {losses:.1e} of PyTorch's, opened in Python: "
        f"outputs within {trained:.1e} of its own training, loss within {evaluated:.1e} of ours"
    )


def main():
    binary, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    cases = [Bert(), BertMasked(), Gpt2(), Resnet(), Vgg(), Lstm()]
    for case in cases:
        if not sys.argv[3:] or type(case).__name__ in sys.argv[3:]:
            check(case, binary, folder / type(case).__name__)


main()
