#!/usr/bin/env python3
"""Writes tests/fixtures/generate.json: what transformers' generate(num_beams=…) makes of the model in
tests/fixtures/gpt2.safetensors (make_gpt2_fixture.py), token by token.

Needs torch, transformers and safetensors; run it by hand when the fixture should change, and commit
the result.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
MARK = "parameter/"


def main():
    torch.set_num_threads(1)
    tensors = load_file(FIXTURES / "gpt2.safetensors")
    config = GPT2Config(vocab_size=61, n_positions=16, n_embd=24, n_layer=3, n_head=3, n_inner=80,
                        layer_norm_epsilon=2e-5, attn_implementation="eager")
    model = GPT2LMHeadModel(config).eval()
    model.load_state_dict({n.removeprefix(MARK): t for n, t in tensors.items() if n.startswith(MARK)}, strict=False)
    with torch.no_grad():  # the model as it is says one token for ever; so it wavers
        model.transformer.ln_f.weight.mul_(-0.5)
        model.transformer.ln_f.bias.zero_()
    model.generation_config.eos_token_id = None
    cases = []

    def add(prompt, tokens, beams, penalty=1.0, stop=-1):
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, num_beams=beams,
                             do_sample=False, length_penalty=penalty, early_stopping=False, pad_token_id=0,
                             eos_token_id=None if stop < 0 else stop)[0].tolist()
        if stop >= 0 and stop in out[len(prompt):]:
            out = out[:out.index(stop, len(prompt)) + 1]  # what follows is padding
        cases.append({"prompt": prompt, "tokens": tokens, "num_beams": beams, "length_penalty": penalty,
                      "stop_token": stop, "output": out})

    prompts = [tensors["inputs"][row, :4].tolist() for row in range(3)]
    for prompt in prompts:
        for beams in (2, 4, 7):
            add(prompt, 12, beams)
    seen = sorted({token for case in cases for token in case["output"][4:]})
    for prompt in prompts:
        for stop in seen:
            for penalty in (1.0, 0.0, 2.5, -1.0):
                add(prompt, 12, 4, penalty, stop)
    # Those that stop somewhere, and those where the penalty decides, are worth their place.
    by_key = {}
    for case in cases:
        key = (tuple(case["prompt"]), case["stop_token"])
        by_key.setdefault(key, []).append(case)
    kept = []
    for group in by_key.values():
        outputs = {tuple(case["output"]) for case in group}
        if group[0]["stop_token"] < 0 or len(outputs) > 1:
            kept += group
    early = sum(len(case["output"]) < 16 for case in kept)
    (FIXTURES / "generate.json").write_text(
        "[\n" + ",\n".join(json.dumps(case) for case in kept) + "\n]\n")
    print(f"{len(kept)} of {len(cases)} cases, {early} of which stop early")


if __name__ == "__main__":
    main()
