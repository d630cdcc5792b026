"""Makes tests/fuzz/seeds/: small files that the fuzzed readers start from.

    python3 scripts/make_fuzz_seeds.py      (nothing but the standard library)

ok_* must be read, bad_* must be refused (tests/fuzz/replay_test.cpp). Most are the test fixtures as
they are; the others are the tricks by hand that a fuzzer would take long to find.
"""

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
SEEDS = ROOT / "tests" / "fuzz" / "seeds"


def write(target, name, data):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def safetensors(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def make_safetensors():
    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    two = {"a": tensor("F32", [2], 0, 8), "b": tensor("I64", [0, 3], 8, 8), "c": tensor("BF16", [], 8, 10)}
    write("safetensors", "ok_small", safetensors(two, bytes(10)))
    write("safetensors", "ok_metadata", safetensors({"__metadata__": {"format": "pt"}, **two}, bytes(10)))
    write("safetensors", "ok_empty", safetensors({}))
    types = ["F64", "F16", "I32", "I16", "I8", "U8", "BOOL", "U16", "U32", "U64", "F8_E4M3", "F8_E5M2"]
    sizes = [8, 2, 4, 2, 1, 1, 1, 2, 4, 8, 1, 1]
    header, at = {}, 0
    for name, size in zip(types, sizes):
        header[name] = tensor(name, [1, 1], at, at + size)
        at += size
    write("safetensors", "ok_dtypes", safetensors(header, bytes(at)))
    write("safetensors", "ok_model", (FIXTURES / "pt" / "model.safetensors").read_bytes())

    write("safetensors", "bad_overlap", safetensors({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)},
                                                    bytes(6)))
    write("safetensors", "bad_offset", safetensors({"a": tensor("U8", [4], 2 ** 63, 2 ** 63 + 4)}, bytes(4)))
    write("safetensors", "bad_negative", safetensors({"a": tensor("U8", [4], -4, 0)}, bytes(4)))
    write("safetensors", "bad_size", safetensors(two, bytes(10), 2 ** 63 - 1))
    write("safetensors", "bad_product", safetensors({"a": tensor("U8", [2 ** 32, 2 ** 32], 0, 0)}))
    write("safetensors", "bad_twice", safetensors(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"1"))
    write("safetensors", "bad_deep", safetensors(b"[" * 20000))
    write("safetensors", "bad_dimensions", safetensors({"a": tensor("U8", [1] * 5000, 0, 1)}, b"1"))
    write("safetensors", "bad_line", safetensors({"a\nb": tensor("F99", [1], 0, 1)}, b"1"))


def zip_of(entries, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return out.getvalue()


def tensor_pickle(key="0", dtype="FloatStorage", numel=16, offset=0, size=(2, 2), stride=(2, 1)):
    """A state_dict {"w": tensor}, protocol 2."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def integer(value):
        return b"J" + struct.pack("<i", value) if abs(value) < 2 ** 31 else \
            b"\x8a\x08" + struct.pack("<q", value)

    def integers(values):
        return b"(" + b"".join(integer(value) for value in values) + b"t"

    storage = b"(" + text("storage") + b"ctorch\n" + dtype.encode() + b"\n" + text(key) + text("cpu") + \
        integer(numel) + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"\x80\x02}" + text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + integer(offset) + \
        integers(size) + integers(stride) + b"\x89" + hooks + b"tRs."


def make_pickle():
    write("pickle", "ok_tensor", tensor_pickle())
    write("pickle", "ok_expanded", tensor_pickle(size=(64, 64), stride=(0, 0)))
    write("pickle", "ok_empty", tensor_pickle(numel=0, size=(0,), stride=(1,)))
    write("pickle", "ok_call", b"cposix\nsystem\n(X\x04\x00\x00\x00truetR.")
    write("pickle", "bad_offset", tensor_pickle(offset=2 ** 62))
    write("pickle", "bad_stride", tensor_pickle(stride=(2 ** 62, 2 ** 62)))
    write("pickle", "bad_size", tensor_pickle(size=(2 ** 40, 2 ** 40)))
    write("pickle", "bad_negative", tensor_pickle(stride=(-1, 1)))
    write("pickle", "bad_storage", tensor_pickle(numel=2 ** 40))
    write("pickle", "bad_key", tensor_pickle(key="../0"))
    write("pickle", "bad_dtype", tensor_pickle(dtype="Quantised\nStorage"))
    write("pickle", "bad_deep", b"]" * 5000 + b"a" * 4999 + b".")
    # Lists of twice the list before: 2^40 values for whoever walks them.
    write("pickle", "bad_bomb", b"]q\x00" + b"".join(b"]q" + bytes([i + 1]) + b"(h" + bytes([i, 0x68, i]) + b"e"
                                                     for i in range(40)) + b".")
    # A shape that is a torch.Size of itself.
    write("pickle", "bad_cycle", tensor_pickle().replace(
        b"(J\x02\x00\x00\x00J\x02\x00\x00\x00t", b"ctorch\nSize\n]q\x09Rq\x08h\x09h\x08a0", 1))
    # One long text as the key of everything.
    key = b"X\x00\x40\x00\x00" + b"k" * 0x4000 + b"q\x01"
    write("pickle", "bad_names", b"}" + key + b"0" + b"(" + b"h\x01N" + b"t0" + b"".join(
        b"h\x01}" for _ in range(60)) + b"(" + b"K\x01K\x02" * 8000 + b"u" + b"s" * 60 + b".")
    write("pickle", "bad_globals", key + b"0" + b"h\x01h\x01\x930" * 16000 + b"N.")
    write("pickle", "bad_memo", b"N" + b"\x94" * 30000)


def make_pt():
    for path in sorted((FIXTURES / "pt").glob("*.pt")):
        write("pt", f"ok_{path.stem}", path.read_bytes())
    pickle = tensor_pickle()
    storage = bytes(64)
    whole = [("a/data.pkl", pickle), ("a/data/0", storage), ("a/byteorder", b"little")]
    write("pt", "ok_by_hand", zip_of(whole))
    write("pt", "ok_path_trick", zip_of([*whole, ("../../etc/passwd", b"x"), ("/tmp/x", b"y")]))
    write("pt", "bad_big_endian", zip_of([*whole[:2], ("a/byteorder", b"big")]))
    write("pt", "bad_missing", zip_of(whole[:1]))
    write("pt", "bad_compressed", zip_of(whole, zipfile.ZIP_DEFLATED))
    write("pt", "bad_twice", zip_of([*whole, ("a/data.pkX", pickle)]).replace(b"a/data.pkX", b"a/data.pkl"))
    data = bytearray(zip_of(whole))
    directory = data.index(b"PK\x01\x02")
    sizes = bytearray(data)
    sizes[directory + 20:directory + 28] = struct.pack("<II", 10 ** 9, 10 ** 9)
    write("pt", "bad_sizes", bytes(sizes))
    overlap = bytearray(data)
    second = data.index(b"PK\x01\x02", directory + 4)
    overlap[second + 42:second + 46] = struct.pack("<I", 0)  # the storage lies where the pickle does
    write("pt", "bad_overlap", bytes(overlap))
    write("pt", "bad_cut", bytes(data[:-30]))
    # The format before torch 1.6, whose list of keys has one storage many times.
    legacy = (FIXTURES / "pt" / "legacy.pt").read_bytes()
    write("pt", "bad_legacy_cut", legacy[:-20])


def make_index():
    def text(mapping):
        return json.dumps({"metadata": {"total_size": 8}, "weight_map": mapping})

    write("index", "ok_index", text({"a": "b.safetensors"}))
    write("index", "bad_missing", text({"a": "c.safetensors"}))
    write("index", "bad_path", text({"a": "../b.safetensors"}))
    write("index", "bad_folder", text({"a": ".."}))
    write("index", "bad_itself", text({"a": "a.safetensors.index.json"}))
    write("index", "bad_name", text({"a": "b.safetensors", "z\nz": "b.safetensors"}))
    write("index", "bad_long", text({"a": "b" * 5000}))
    write("index", "bad_type", text({"a": 1}))


def make_tokenizer():
    folder = FIXTURES / "tokenizer"
    bpe = json.loads((folder / "bpe.json").read_text())
    words = json.loads((folder / "uncased.json").read_text())
    small = {**words, "model": {**words["model"], "vocab": {
        token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", "the"])}},
        "added_tokens": [{**token, "id": i} for i, token in enumerate(words["added_tokens"])]}

    def write_json(name, value):
        write("tokenizer", name, "0" + json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    write_json("ok_bpe", bpe)
    write_json("ok_wordpiece", small)
    write("tokenizer", "ok_vocab_txt", "1" + "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n\x1e" +
          '{"do_lower_case":false}')
    write("tokenizer", "ok_vocab_json", b"2" + (folder / "vocab.json").read_bytes() + b"\x1e" +
          (folder / "merges.txt").read_bytes())
    for part in ("model", "pre_tokenizer", "post_processor"):
        write_json(f"bad_no_{part}", {**small, part: {}})
    for field in ("vocab", "type"):
        write_json(f"bad_model_{field}", {**small, "model": {**small["model"], field: None}})
    write_json("bad_id", {**small, "model": {**small["model"], "vocab": {"[UNK]": 2 ** 40}}})
    write_json("bad_added", {**small, "added_tokens": [{"id": 2 ** 31, "content": "x"}]})
    write_json("bad_merge", {**bpe, "model": {**bpe["model"], "merges": ["a\nb"]}})
    write_json("bad_merge_of_nothing", {**bpe, "model": {**bpe["model"], "merges": [["\n", "b"]]}})
    write_json("bad_cls", {**small, "post_processor": {"type": "BertProcessing", "cls": [], "sep": ["[SEP]", 3]}})
    write("tokenizer", "bad_vocab_txt", "1a\nb\n\x1e{}")
    write("tokenizer", "bad_config", "1[UNK]\n\x1e[")
    write("tokenizer", "bad_merges", b"2" + (folder / "vocab.json").read_bytes() + b"\x1enopair\n")
    write("tokenizer", "bad_deep", "0" + "[" * 20000)


def make_config():
    for path in sorted((ROOT / "examples").rglob("run.toml")):
        if path.parent.name.startswith("own_"):  # of kinds that a program registers
            continue
        write("config", f"ok_{path.parent.name}", path.read_bytes())
    digits = (ROOT / "examples" / "digits" / "run.toml").read_text()
    write("config", "ok_sets", digits + "\x1erun.seed=5\x1eoptimizer.learning_rate=0.5")
    write("config", "bad_sets", digits + "\x1erun.steps\x1e=\x1erun.steps=[1\x1erun.steps=\n\x1e")
    write("config", "bad_keys", "[model]\nkindd = 'x'\nkind = 7\n[modle]\na = [[1], {b = 2}]\n")
    write("config", "bad_dotted", ".".join(["a"] * 30000) + " = 1\n")
    write("config", "bad_deep", "a = " + "[" * 30000 + "\n")
    write("config", "bad_numbers", "[run]\nsteps = 9223372036854775808\nseed = -1\n[optimizer]\nlr = nan\n"
                                   "[batch]\nglobal_batch = 1e400\n")
    write("config", "bad_bytes", b"a = '\xff\xfe'\n\x00")


def main():
    shutil.rmtree(SEEDS, ignore_errors=True)
    for make in (make_safetensors, make_pickle, make_pt, make_index, make_tokenizer, make_config):
        make()
    total = sum(path.stat().st_size for path in SEEDS.rglob("*") if path.is_file())
    print(f"{total / 1024:.0f} KiB in {SEEDS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
