"""Tokenises the same text with tanren and with Hugging Face tokenizers, in turn, and prints the ratio.

    python benchmarks/peers/tokenize_peer.py build/release/tanren [MEGABYTES] [PAIRS]

Text: Python's standard library, repeated. Vocabulary: 30 000 entries, trained on that text. Both
use all cores. Hugging Face gets pieces of 4 KB, its fastest size, through encode_batch_fast, 8 MB
at a time so that its objects fit into memory. Its ids are kept as an array, since tanren writes its
ids as one. The ids of both are compared.
"""

import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers


def text_of(megabytes):
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    text = "".join(file.read_text(errors="ignore") for file in files if "site-packages" not in str(file))
    return (text * (1 + megabytes * 2**20 // len(text)))[: megabytes * 2**20]


def chunks(text, size=1 << 12):
    begin = 0
    while begin < len(text):
        end = min(begin + size, len(text))
        while end < len(text) and not (text[end].isspace() and not text[end - 1].isspace()):
            end += 1
        yield text[begin:end]
        begin = end


def encoded(tokenizer, pieces, at_once=2048):
    parts = []
    for begin in range(0, len(pieces), at_once):
        ids = [piece.ids for piece in tokenizer.encode_batch_fast(pieces[begin : begin + at_once])]
        parts.append(numpy.concatenate([numpy.array(piece, dtype=numpy.uint16) for piece in ids]))
    return numpy.concatenate(parts)


def trained(kind, text):
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=30000, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=30000, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(chunks(text[: 8 * 2**20]), trainer)
    return tokenizer


def main():
    program, megabytes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    text = text_of(megabytes)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "text").write_text(text)
        for kind in ("bpe", "wordpiece"):
            tokenizer = trained(kind, text)
            tokenizer.save(str(folder / "tokenizer.json"))
            ours, theirs = [], []
            for _ in range(pairs):
                begin = time.perf_counter()
                subprocess.run([program, "convert", folder / "text", folder / "ids", "--quiet", "--tokenizer",
                                folder / "tokenizer.json"], check=True)
                ours.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                ids = encoded(tokenizer, list(chunks((folder / "text").read_text())))
                theirs.append(time.perf_counter() - begin)
            equal = numpy.array_equal(numpy.fromfile(folder / "ids", dtype=numpy.uint16), ids)
            ratios = sorted(a / b for a, b in zip(ours, theirs))
            print(f"{kind}: tanren {statistics.median(ours):.2f} s, tokenizers {statistics.median(theirs):.2f} s, ratio "
                  f"min {ratios[0]:.2f} median {statistics.median(ratios):.2f} max {ratios[-1]:.2f}, "
                  f"{len(ids)} ids {'equal' if equal else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
