"""Makes tests/fixtures/tokenizer/: small WordPiece and byte-level BPE vocabularies, trained here on
sentences written for it, and what Hugging Face tokenizers makes of a corpus of hard cases.

    python scripts/make_tokenizer_fixtures.py      (tokenizers from PyPI)
"""

import json
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


def main():
    FOLDER.mkdir(exist_ok=True)
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


if __name__ == "__main__":
    main()
