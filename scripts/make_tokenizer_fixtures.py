"""Makes tests/fixtures/tokenizer/: small WordPiece and byte-level BPE vocabularies, trained here on
sentences written for it, and what Hugging Face tokenizers makes of a corpus of hard cases; the same of
tokens that were added to them, of pairs that are cut, and of the older files beside a vocabulary.

    python scripts/make_tokenizer_fixtures.py [added]      (tokenizers and transformers from PyPI)

With `added` the vocabularies stay as they are.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tokenizer"

TRAINING = [
    "The forge trains the blade, and the blade remembers each blow of the hammer.",
    "A training run reads its text, counts its tokens and divides by what it counted.",
    "Don't stop the run: it's resumable, we've saved it, they're sure, I'm done, he'll see, she'd know.",
    "Numbers such as 3, 14, 159 and 2653589 stand between words; 50% of them are odd.",
    "Les élèves français préfèrent naïvement le café à l'été. Größe, Übung, Straße, ñandú, Åse.",
    "def forward(self, x):\n    return self.head(self.body(x))  # a comment\n\n\n",
    "日本語の文章と中文字符以及한국어 텍스트 are split by character or by byte.",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया।",
] * 4

HARD = [
    "", " ", "  ", "\n", "\t\t", " \n \n", "a", " a", "a ", "  a  b   c ", "hello world",
    "Hello, WORLD!!! How's it going?", "don't DON'T don\u2019t 'tis 'Tis we'll'd've", "can't've",
    "3.14159e-10 1,000,000 0x1F 50% $5 #7 @me a_b a-b", "x"*100, "x"*101, "x"*300, "ab "*50,
    "naïve café résumé Ångström ÉCOLE", "nai\u0308ve cafe\u0301 re\u0301sume\u0301",
    "İstanbul ISTANBUL ıslak", "ΑΣ ΟΔΥΣΣΕΥΣ σς", "ﬁnance ﬂow ½ ² ℌ ™", "Straße STRASSE ẞ",
    "日本語テキスト", "中文字符 mixed中english文", "한국어 텍스트입니다", "ｆｕｌｌ ｗｉｄｔｈ", "㐀㐁 𠀀𠀁 豈更",
    "😀 😃👍🏽 👨‍👩‍👧‍👦 🇩🇪🇯🇵", "e\u0301\u0302\u0303 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", "\u0000 \u0001\u0002 \u007f \u0085 \u00a0",
    "\ufeffBOM", "soft\u00adhyphen zero\u200bwidth\u200djoin \u2028line\u2029para", "\ufffd \ufffe", "a\u3000b\u2003c\u202fd",
    "مرحبا بالعالم", "שָׁלוֹם עוֹלָם", "नमस्ते दुनिया।", "ไทยไม่มีช่องว่าง", "Привет, МИР! Ёлка ёж", "Γειά σου ΚΌΣΜΕ",
    "[CLS] text [SEP] [MASK] [UNK] [PAD]", "[mask] [ MASK ] x[MASK]y", "<|endoftext|>", "a<|endoftext|>b <|endoftext|>  c",
    "def f(x):\n\treturn x**2  # ok\n\n\n    y = 1\r\n", "trailing spaces   \n   leading", "tabs\tand\nnew\r\nlines\r",
    "…—–‘’“”«»¿¡§¶†‡•", "!!!???...", "((([[[{{{", "`~^|\\<>=+", "C++ C# .NET a.b.c U.S.A.", "http://a.b/c?d=e&f=g#h",
    "x²+y³=z⁴ ∑∏∫ √2 ≤≥≠ αβγ", "१२३ ٤٥٦ Ⅷ ⅻ ① ㉑", "a" + "\u0301"*40, "\u0301", "\U0001d54f\U0001d556", "a\u200eb\u200fc",
    "The forge trains the blade, and the blade remembers.", "tokens tokenizer tokenization untokenizable",
]


def wordpiece(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TRAINING, trainers.WordPieceTrainer(vocab_size=700, special_tokens=special,
                                                                      show_progress=False))
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    return tokenizer


def byte_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


FLAGS = ("normalized", "single_word", "lstrip", "rstrip", "special")

# Texts around an added token T.
AROUND = [
    "T", " T ", "aTb", "a T b", "a  T  b", "T T", "TT", " T T  T ", "a\tT\n\nb", "a\u00a0T\u2003b\u3000",
    "x.T,y", "(T)", "_T", "T_", "3T", "T3", "\u0301T", "T\u0301", "日T本", "T\u200db", "\u24d0T", "T\u203f",
    "tT", "The forge T the blade T", "  T", "T  ", "aT bT T", "T\u0085T", "[MASK]T [MASK] <|endoftext|> T",
]


def with_added(name, tokens, **changes):
    """The file `name` with more added tokens, and the tokenizer that it makes."""
    file = json.loads((FOLDER / f"{name}.json").read_text()) | changes
    vocabulary = file["model"]["vocab"]
    added = []
    for token in tokens:
        token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} | token
        known = vocabulary.get(token["content"])
        free = len(vocabulary) + sum(other["id"] >= len(vocabulary) for other in added)
        added.append({"id": free if known is None else known} | token)
    file["added_tokens"] += added
    return file["added_tokens"], Tokenizer.from_str(json.dumps(file))


def ids_of(tokenizer, texts):
    return [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts]


def added_cases():
    for name in ("uncased", "bpe"):
        for values in itertools.product((False, True), repeat=len(FLAGS)):
            flags = dict(zip(FLAGS, values))
            for content in ("Zork", "Éa b", "<t>"):
                if content != "Zork" and sum(values) != 1:
                    continue
                added, tokenizer = with_added(name, [flags | {"content": content}])
                variants = [content] + ([content.lower()] if flags["normalized"] else [])
                texts = [text.replace("T", variant) for text in AROUND for variant in variants]
                yield {"base": name, "added": added, "texts": ids_of(tokenizer, texts)}
    several = [
        [{"content": "ab"}, {"content": "abc", "single_word": True}],
        [{"content": "q", "rstrip": True}, {"content": " z"}, {"content": "w ", "lstrip": True}],
        [{"content": "Zork", "normalized": True}, {"content": "zork", "special": True}],
        [{"content": "zor"}, {"content": "zork"}, {"content": "the", "single_word": True}],
        [{"content": " x", "single_word": True}, {"content": "y\nz"}, {"content": "  "}],
    ]
    texts = ["abcd abc ab abab", "q z  z q  zq", "w  w aw ", "zork ZORK Zork zorks", "the then lathe THE zorzork",
             "a x  x x xx", "y\nz y z   y\n\nz", "x   x"]
    for name, tokens in itertools.product(("uncased", "cased", "bpe"), several):
        added, tokenizer = with_added(name, tokens)
        yield {"base": name, "added": added, "texts": ids_of(tokenizer, texts)}
    prefixed = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    added, tokenizer = with_added("bpe", [{"content": "<t>", "rstrip": True}], pre_tokenizer=prefixed)
    texts = ["the blade", " the", "\nthe", "the<t>blade", "the<t>  blade<t>\n\tthe", "<t>", "", "\t", "<|endoftext|>the"]
    yield {"base": "bpe", "added": added, "pre_tokenizer": prefixed, "texts": ids_of(tokenizer, texts)}


def pairs_of(tokenizer, rooms):
    words = ["the", "blade", "forge", "run", "text"]
    pairs = []
    for a, b, room in itertools.product((0, 1, 3, 4, 8), (0, 1, 3, 4, 8), rooms):
        texts = [" ".join((words * 2)[:n]) for n in (a, b)]
        tokenizer.enable_truncation(room)
        made = tokenizer.encode(*texts)
        pairs.append({"a": texts[0], "b": texts[1], "room": room, "ids": made.ids, "types": made.type_ids})
    tokenizer.no_truncation()
    return pairs


def pair_cases():
    def piece(kind, name, kind_of_token):
        return {kind: {"id": name, "type_id": kind_of_token}}

    end = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
    begins = {
        "type": "TemplateProcessing", "special_tokens": end,
        "single": [piece("SpecialToken", "<|endoftext|>", 0), piece("Sequence", "A", 0)],
        "pair": [piece("SpecialToken", "<|endoftext|>", 0), piece("Sequence", "A", 0),
                 piece("SpecialToken", "<|endoftext|>", 1), piece("Sequence", "B", 1)],
    }
    roberta = {"type": "RobertaProcessing", "sep": ["<|endoftext|>", 0], "cls": ["<|endoftext|>", 0],
               "trim_offsets": True, "add_prefix_space": False}
    bert = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    for name, changes in (("uncased", {}), ("cased", {"post_processor": bert}), ("bpe", {}),
                          ("bpe", {"post_processor": begins}), ("bpe", {"post_processor": roberta})):
        added, tokenizer = with_added(name, [], **changes)
        yield {"base": name, "added": added, "pairs": pairs_of(tokenizer, (6, 7, 10, 11))} | changes


def older_cases():
    from transformers import BertTokenizer, GPT2Tokenizer

    words, pieces = (FOLDER / "vocab.txt").read_text(), json.loads((FOLDER / "vocab.json").read_text())
    n, m = words.count("\n"), len(pieces)
    bert, gpt = {"tokenizer_class": "BertTokenizer"}, {"tokenizer_class": "GPT2Tokenizer"}
    mask = {"content": "<m>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    word = {"content": "Zork", "lstrip": True, "rstrip": True, "normalized": True, "single_word": True, "special": False}
    cases = [
        (BertTokenizer, {}),
        (BertTokenizer, {"added_tokens.json": {"zork": n, "Bar": n + 1}}),
        (BertTokenizer, {"tokenizer_config.json": bert | {"mask_token": "<m>", "do_lower_case": False}}),
        (BertTokenizer, {"tokenizer_config.json": bert, "added_tokens.json": {"<m>": n, "Zork": n + 1},
                         "special_tokens_map.json": {"mask_token": mask, "additional_special_tokens": ["ork"]}}),
        (BertTokenizer, {"tokenizer_config.json": bert | {"added_tokens_decoder": {str(n): word}},
                         "added_tokens.json": {"Bar": n}, "special_tokens_map.json": {"mask_token": "<m>"}}),
        (BertTokenizer, {"vocab.txt": words.replace("[MASK]\n", "[M]\n").replace("[PAD]\n", "[P]\n")}),
        (BertTokenizer, {"vocab.txt": words + "zork\nthe\n##ork\n"}),
        (GPT2Tokenizer, {}),
        (GPT2Tokenizer, {"added_tokens.json": {"zork": m, "<m>": m + 1}, "tokenizer_config.json": gpt}),
        (GPT2Tokenizer, {"tokenizer_config.json": gpt | {"add_prefix_space": True, "pad_token": "<m>"}}),
        (GPT2Tokenizer, {"tokenizer_config.json": gpt | {"add_bos_token": True, "bos_token": "<m>"}}),
    ]
    texts = ["a zork b", "Zork, ZORK zorks bar Bar", "x[MASK] y [PAD][MASK]", "é <m> <m>e", "  <m>the the", "ork the\n"]
    for kind, beside in cases:
        usual = {"vocab.txt": words} if kind is BertTokenizer else {
            "vocab.json": (FOLDER / "vocab.json").read_text(), "merges.txt": (FOLDER / "merges.txt").read_text()}
        files = {name: text if isinstance(text, str) else json.dumps(text) for name, text in beside.items()}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (usual | files).items():
                (Path(folder) / name).write_text(text)
            made = kind.from_pretrained(folder)
        plain = [{"text": text, "ids": made(text, add_special_tokens=False)["input_ids"]} for text in texts]
        framed = [{"text": text, "ids": made(text)["input_ids"]} for text in texts]
        missing = [name for name in usual if name not in files]
        yield {"usual": missing, "files": files, "texts": plain, "framed": framed, "size": max(made.get_vocab().values()) + 1}


def write_added():
    for name, cases in (("added", added_cases()), ("pairs", pair_cases()), ("older", older_cases())):
        (FOLDER / f"{name}.json").write_text(json.dumps(list(cases), ensure_ascii=True) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    if sys.argv[1:] == ["added"]:
        write_added()
        return
    expected = {}
    for name, tokenizer in (("uncased", wordpiece(True)), ("cased", wordpiece(False)), ("bpe", byte_bpe())):
        tokenizer.save(str(FOLDER / f"{name}.json"), pretty=False)
        expected[name] = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                           "special": tokenizer.encode(text).ids,
                           "decoded": tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids,
                                                       skip_special_tokens=False)} for text in HARD]
    # The older files of the same vocabularies.
    vocabulary = json.loads((FOLDER / "uncased.json").read_text())["model"]["vocab"]
    (FOLDER / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    bpe = json.loads((FOLDER / "bpe.json").read_text())["model"]
    (FOLDER / "vocab.json").write_text(json.dumps(bpe["vocab"], ensure_ascii=False))
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in bpe["merges"]]
    (FOLDER / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=True))
    write_added()


if __name__ == "__main__":
    main()
