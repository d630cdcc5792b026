#!/usr/bin/env python3
"""Writes tests/fixtures/lstm_*.safetensors from torch.nn.LSTM: two layers that classify token sequences
of unequal length (packed, both directions), guess the next token, and classify vectors (fp32, no
dropout); and 20 steps of AdamW.

Needs torch and safetensors; run it by hand when a fixture should change, and commit the result.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
IGNORED = -100


class Model(nn.Module):
    def __init__(self, vocab, inputs, outputs, bidirectional, next_token):
        super().__init__()
        if vocab:
            self.embedding = nn.Embedding(vocab, inputs)
        self.lstm = nn.LSTM(inputs, 10, num_layers=2, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(20 if bidirectional else 10, outputs)
        self.next_token = next_token

    def forward(self, x, lengths=None):
        if hasattr(self, "embedding"):
            x = self.embedding(x)
        if self.next_token:
            return self.head(self.lstm(x)[0])
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        state = self.lstm(x)[1][0]
        last = state[-2:] if self.lstm.bidirectional else state[-1:]
        return self.head(torch.cat(list(last), dim=1))


def loss_sum(logits, labels):
    return nn.functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def write(name, vocab, outputs, bidirectional=False, next_token=False, padded=False):
    torch.manual_seed(9)
    model = Model(vocab, 8, outputs, bidirectional, next_token)
    result = {f"parameter/{key}": p.detach().clone() for key, p in model.named_parameters()}
    inputs = torch.randint(vocab, (4, 9)) if vocab else torch.randn(4, 9, 8)
    lengths = None
    if padded:
        lengths = torch.tensor([9, 4, 1, 6])
        mask = torch.arange(9) < lengths[:, None]
        inputs[~mask] = 0
        result["attention_mask"] = mask.long()
    labels = torch.randint(outputs, (4, 9)) if next_token else torch.tensor([2, 0, 1, 2])
    if next_token:
        labels[1, 5:] = labels[3, 2] = IGNORED
    logits = model(inputs, lengths)
    loss = loss_sum(logits, labels)
    loss.backward()
    result |= {"inputs": inputs, "labels": labels, "logits": logits.detach(), "loss": loss.detach()}
    for key, parameter in model.named_parameters():
        result[f"gradient/{key}"] = parameter.grad.clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    count = (labels != IGNORED).sum()
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_sum(model(inputs, lengths), labels) / count
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    result["losses"] = torch.stack(losses)
    target = FIXTURES / f"lstm_{name}.safetensors"
    save_file({n: t.contiguous() for n, t in result.items()}, target)
    target.chmod(0o644)


def main():
    torch.set_num_threads(1)
    write("classify", vocab=17, outputs=3, padded=True)
    write("both_ways", vocab=17, outputs=3, bidirectional=True, padded=True)
    write("vectors", vocab=0, outputs=3, bidirectional=True)
    write("next_token", vocab=17, outputs=17, next_token=True)


if __name__ == "__main__":
    main()
