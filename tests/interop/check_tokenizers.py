#!/usr/bin/env python3
"""Random texts and pairs through tanren's tokenizers and Hugging Face's: every id must be the same.

    check_tokenizers.py BUILD_FOLDER TANREN_BINARY

For each kind of vocabulary and each set of added tokens (every combination of normalized,
single_word, lstrip, rstrip, special): 1000 texts and 1000 pairs that are truncated to odd and even
lengths, from a fixed seed. Then the older file formats against transformers, and texts longer than
a chunk through `tanren convert`.

Called by tests/interop/run, which provides the packages.
"""

import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "tokenizer"
FLAGS = ("normalized", "single_word", "lstrip", "rstrip", "special")
# All differ after normalisation; otherwise Hugging Face's choice between two would be random.
CONTENTS = ["Zork", "run", "ÉA b", "<t>", "日本", "the", "ing", "[X]", "  ", "é", "a\u0301b", "'s", "1", "q\n", " w", "İ"]
TEXTS = 1000

# The code points of random texts. Those assigned after Unicode 14 are left out, because the
# packages have Unicode tables of different versions.
RANGES = [
    (0x20, 0x7E), (0x20, 0x7E), (0x00, 0x1F), (0x7F, 0xA0), (0xA0, 0x17F), (0x180, 0x24F), (0x250, 0x2AF),
    (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x556), (0x5D0, 0x5EA), (0x620, 0x64A), (0x660, 0x669),
    (0x905, 0x939), (0x93E, 0x94D), (0xE01, 0xE3A), (0x10A0, 0x10C5), (0x1E00, 0x1EFF), (0x1F00, 0x1F15),
    (0x2000, 0x206F), (0x2070, 0x209C), (0x20A0, 0x20BF), (0x20D0, 0x20F0), (0x2100, 0x218B), (0x2190, 0x22FF),
    (0x2460, 0x24FF), (0x2500, 0x257F), (0x2600, 0x26FF), (0x2E80, 0x2E99), (0x3000, 0x303F), (0x3041, 0x3096),
    (0x30A1, 0x30FA), (0x3131, 0x318E), (0x3400, 0x3420), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xE000, 0xE010),
    (0xF900, 0xFA2D), (0xFB00, 0xFB06), (0xFE00, 0xFE2F), (0xFF01, 0xFF5E), (0xFFFC, 0xFFFD), (0x10400, 0x1044F),
    (0x1D400, 0x1D454), (0x1F130, 0x1F189), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x20000, 0x20040),
    (0x2F800, 0x2FA1D), (0xE0001, 0xE0001),
]
WORDS = ("the forge trains blade and remembers each blow of hammer Don't stop it's we've I'm français élèves Größe "
         "naïvement 日本語 Привет мир नमस्ते untokenizable tokens 2653589 50% [MASK] [SEP] <|endoftext|> ").split()
SPACES = [" ", " ", " ", "  ", "\n", "\t", "\r\n", "   \n\n  ", "\u00a0", "\u3000", "\v", "\f", "\x85", "\u2028", ""]


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] tokenizers: {what}")


class Draw:
    def __init__(self, seed, contents):
        self.random = random.Random(seed)
        self.contents = contents

    def character(self):
        while True:
            code = self.random.randint(*self.random.choice(RANGES))
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    def part(self):
        roll = self.random.random()
        if roll < 0.3:
            return self.random.choice(WORDS)
        if roll < 0.6 and self.contents:
            content = self.random.choice(self.contents)
            return self.random.choice([content, content, content.lower(), content.upper(), content + content])
        if roll < 0.65:
            return self.random.choice([" ", "\n", "a", "\u0301"]) * self.random.randint(1, 60)
        return "".join(self.character() for _ in range(self.random.randint(1, 6)))

    def text(self):
        parts = []
        for _ in range(self.random.randint(0, 12)):
            parts += [self.part(), self.random.choice(SPACES)]
        return "".join(parts)


def ours(build, path, asked):
    lines = "".join(json.dumps(item) + "\n" for item in asked)
    result = subprocess.run([build / "tests" / "token_ids", path], input=lines, check=False, capture_output=True, text=True)
    expect(result.returncode == 0, f"{path}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def same(name, build, path, draw, encode, encode_pair, rooms, count=TEXTS):
    """Compares with encode(text) and encode_pair(a, b, room); returns how many ids it compared."""
    texts = [{"text": draw.text()} for _ in range(count)]
    pairs = [{"text": draw.text(), "pair": draw.text() or "a", "room": rooms[i % len(rooms)]} for i in range(count)]
    ids = 0
    for asked, said in zip(texts, ours(build, path, texts), strict=True):
        wanted = dict(zip(("ids", "framed"), encode(asked["text"])))
        expect(said == wanted, f"{name}: {asked} has {wanted}, tanren says {said}")
        ids += len(said["ids"])
    for asked, said in zip(pairs, ours(build, path, pairs), strict=True):
        wanted = dict(zip(("ids", "types"), encode_pair(asked["text"], asked["pair"], asked["room"])))
        expect(said == wanted, f"{name}: {asked} has {wanted}, tanren says {said}")
        ids += len(said["ids"])
    return ids


def of_file(tokenizer):
    def encode(text):
        tokenizer.no_truncation()
        return tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids

    def encode_pair(a, b, room):
        tokenizer.enable_truncation(room)
        made = tokenizer.encode(a, b)
        return made.ids, made.type_ids

    return encode, encode_pair


def added_to(file, tokens):
    vocabulary = file["model"]["vocab"]
    free = len(vocabulary)
    for token in tokens:
        known = vocabulary.get(token["content"])
        file["added_tokens"].append({"id": free if known is None else known} | token)
        free += known is None
    return file


def kinds():
    """name, tokenizer.json"""
    def load(name):
        return json.loads((FOLDER / f"{name}.json").read_text())

    yield "WordPiece, uncased", load("uncased")
    yield "WordPiece, cased", load("cased")
    accents = load("uncased")
    accents["normalizer"] |= {"strip_accents": False, "handle_chinese_chars": False}
    yield "WordPiece, lower case with accents", accents
    bare = load("cased")
    bare["normalizer"] = None
    yield "WordPiece without normalizer", bare
    yield "byte-level BPE", load("bpe")
    prefix = load("bpe")
    prefix["pre_tokenizer"]["add_prefix_space"] = True
    prefix["post_processor"] = {"type": "RobertaProcessing", "sep": ["<|endoftext|>", 0], "cls": ["<|endoftext|>", 0],
                                "trim_offsets": True, "add_prefix_space": True}
    yield "byte-level BPE with a prefix space", prefix


def flagged(draw, start):
    """Gives each content another of the 32 combinations of flags."""
    tokens = []
    for i, content in enumerate(CONTENTS):
        values = list(itertools.product((False, True), repeat=len(FLAGS)))[(start + i) % 32]
        tokens.append(dict(zip(FLAGS, values)) | {"content": content})
    return tokens


def check_files(build, folder):
    for seed, (name, file) in enumerate(kinds()):
        rounds = ids = 0
        for start in (None, 0, 16):
            drawn = Draw(1000 * seed + (start or 0), CONTENTS)
            tokens = [] if start is None else flagged(drawn, start)
            path = folder / "tokenizer.json"
            path.write_text(json.dumps(added_to(json.loads(json.dumps(file)), tokens)))
            encode, encode_pair = of_file(Tokenizer.from_file(str(path)))
            ids += same(name, build, path, drawn, encode, encode_pair, (5, 8, 13, 24, 37, 64, 10000))
            rounds += 1
        print(f"[interop] {name}: {rounds} × {TEXTS} texts and {TEXTS} pairs, {ids} ids as Hugging Face's")


def check_older(build, folder):
    from transformers import BertTokenizer, GPT2Tokenizer

    for kind, names in ((BertTokenizer, ["vocab.txt"]), (GPT2Tokenizer, ["vocab.json", "merges.txt"])):
        beside = folder / kind.__name__
        beside.mkdir()
        for name in names:
            (beside / name).write_text((FOLDER / name).read_text())
        size = len(kind.from_pretrained(beside))
        (beside / "added_tokens.json").write_text(json.dumps({c: size + i for i, c in enumerate(["Zork", "<t>", "ÉA b"])}))
        made = kind.from_pretrained(beside)

        def encode(text):
            return made(text, add_special_tokens=False)["input_ids"], made(text)["input_ids"]

        def encode_pair(a, b, room):
            both = made(a, b, truncation="longest_first", max_length=room, return_token_type_ids=True)
            return both["input_ids"], both["token_type_ids"]

        draw = Draw(77, ["Zork", "<t>", "ÉA b"])
        ids = same(kind.__name__, build, beside, draw, encode, encode_pair, (5, 8, 13, 24, 37, 64))
        print(f"[interop] {kind.__name__} with added_tokens.json: {TEXTS} texts and {TEXTS} pairs, {ids} ids as transformers'")


def check_chunks(binary, folder):
    for seed, (name, file) in enumerate(kinds()):
        drawn = Draw(500 + seed, ["<t>", "ÉA b", " w"])
        strips = {"single_word": False, "lstrip": False, "rstrip": True, "special": False}
        tokens = [strips | {"content": c, "normalized": c != "<t>", "single_word": c == " w"} for c in drawn.contents]
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(added_to(json.loads(json.dumps(file)), tokens)))
        text = ""
        while len(text.encode()) < 3 << 20:
            text += "".join(drawn.text() for _ in range(200)) + "the<t> \n" * drawn.random.randint(0, 3000)
        text = text.replace("\0", "")  # a file with one is refused as no text
        # newline="" keeps \r as it is.
        (folder / "text").write_bytes(text.encode())
        result = subprocess.run([binary, "convert", folder / "text", folder / "ids", "--tokenizer", path, "--quiet"],
                                check=False, capture_output=True, text=True)
        expect(result.returncode == 0, f"{name}: {result.stderr}")
        data = (folder / "ids").read_bytes()
        found = list(struct.unpack(f"<{len(data) // 2}H", data))
        wanted = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
        where = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        expect(found == wanted, f"{name}: a text of 3 MiB differs at id {where}: {found[where:where + 9]} {wanted[where:where + 9]}")
        print(f"[interop] {name}: {len(found)} ids of 3 MiB in chunks as of the whole text")


def main():
    build, binary = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    with tempfile.TemporaryDirectory() as folder:
        check_files(build, Path(folder))
        check_older(build, Path(folder))
        check_chunks(binary, Path(folder))


main()
