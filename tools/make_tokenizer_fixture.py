"""Records what the Hugging Face `tokenizers` library makes of many texts, for text_tokenizer_test.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3
    /tmp/venv/bin/python tools/make_tokenizer_fixture.py

Run it from the repository root, with a Python whose unicodedata is version 14 (3.11): the texts of
the main list are made of characters assigned by then, since PCRE2 10.42 knows no later ones. The
characters that came later are probed one by one into a list of their own.

Writes tests/golden/text/tokenizer_cases.bin, numbers little-endian, varints as in LEB128:
    "PWTOK1\\n", then three lists, each a u32 count and its cases
    encode   u8 mode (0 all added tokens, 1 not the special ones, 2 none), text, ids, pieces
    decode   u8 skip_special, varint count, varint ids, text
    newer    varint code point, pieces of the text that newer_text() makes around it
  text       varint bytes, the bytes; in decode cases past the first 200 the FNV-1a hash instead
  ids        u64 FNV-1a over the ids as u32; in encode cases before the 500th the ids themselves,
             varint count and varint ids
  pieces     u32, the low half of FNV-1a over the normalised text's pieces, each followed by a byte FF;
             added tokens play no part in it
and tests/golden/text/tokenizer_options.json: small tokenizers with unusual options, and cases.
"""

import json
import random
import struct
import sys
import unicodedata
from pathlib import Path

import tokenizers

from tokenizer_texts import all_texts, control_texts

SEED = 20260101
FULL_ENCODE, FULL_DECODE = 500, 200
OUT = Path("tests/golden/text")
DEMO = Path("models/demo/tokenizer.json")


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return struct.pack("<Q", value)


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text_bytes(text):
    data = text.encode()
    return varint(len(data)) + data


def id_list(ids):
    return varint(len(ids)) + b"".join(map(varint, ids))


def id_hash(ids):
    return fnv1a(struct.pack(f"<{len(ids)}I", *ids))


def piece_hash(tokenizer, text):
    normalized = tokenizer.normalizer.normalize_str(text)
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
    return fnv1a(b"".join(bytes_of(piece) + b"\xff" for piece, _ in pieces))[:4]


def encode_cases(spec, rng):
    """(mode, text, ids, piece hash), the long texts last."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    no_special = tokenizers.Tokenizer.from_str(json.dumps(spec))
    no_special.encode_special_tokens = True
    plain = tokenizers.Tokenizer.from_str(json.dumps({**spec, "added_tokens": []}))
    by_mode = [tokenizer, no_special, plain]
    texts = [(0, t) for t in all_texts(rng)]
    texts += [(mode, t) for mode in (1, 2) for t in control_texts(rng, 400)]
    rng.shuffle(texts)
    texts.sort(key=lambda case: len(case[1]) > 300)  # the long ones are kept as a hash
    return [(mode, t, by_mode[mode].encode(t, add_special_tokens=False).ids, piece_hash(plain, t))
            for mode, t in texts]


def decode_cases(spec, rng, count):
    """(skip_special, ids, text): random ids, with stress on single bytes and added tokens."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    cases = []
    for _ in range(count):
        length = rng.choice([1, 2, 3, 5, 8, 13, 21])
        kinds = rng.choice([(0, 256), (0, 4000), (94, 256), (3990, 4026), (0, 4100)])
        ids = [rng.randrange(*rng.choice([kinds, (94, 256), (0, 4026)])) for _ in range(length)]
        skip = rng.random() < 0.5
        cases.append((skip, ids, tokenizer.decode(ids, skip_special_tokens=skip)))
    return cases


def newer_text(c):
    """A letter or mark joins both letters, a number stands alone, a symbol only takes the second
    one along; a late composition or reordering shows in the last part."""
    return f"a{c}a .{c}{c} e{c}\u0301\u0323"


def newer_cases(spec):
    """Characters unassigned in Unicode 14 that the library treats as more than symbols."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    cases = []
    for code in range(0x110000):
        c = chr(code)
        if unicodedata.category(c) != "Cn":
            continue
        normalized = tokenizer.normalizer.normalize_str(newer_text(c))
        pieces = [bytes_of(p).decode() for p, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]
        as_symbol = ["a", c + "a", f" .{c}{c}", " e", c + "\u0323\u0301"]
        if pieces != as_symbol:
            cases.append((code, piece_hash(tokenizer, newer_text(c))))
    return cases


BYTE_OF = {}


def bytes_of(piece):
    """A pre-tokenizer piece, which is in the byte alphabet, as bytes."""
    if not BYTE_OF:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        BYTE_OF.update({chr(b): b for b in printable})
        rest = [b for b in range(256) if b not in printable]
        BYTE_OF.update({chr(0x100 + i): b for i, b in enumerate(rest)})
    return bytes(BYTE_OF[c] for c in piece)


def small_spec(spec, merge_count):
    """The demo tokenizer cut to its bytes and first merges."""
    model = dict(spec["model"])
    merges = model["merges"][:merge_count]
    names = [name for name, number in sorted(model["vocab"].items(), key=lambda kv: kv[1])]
    names = names[:256] + list(dict.fromkeys(a + b for a, b in merges))
    model.update(vocab={name: i for i, name in enumerate(names)}, merges=merges)
    return {**spec, "model": model, "added_tokens": []}


def token(number, content, **flags):
    base = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {"id": number, "content": content, **base, **flags}


def option_specs(spec):
    small = small_spec(spec, 30)
    first = len(small["model"]["vocab"])
    yield "blanks beside tokens", {**small, "added_tokens": [
        token(first, "<l>", lstrip=True), token(first + 1, "<r>", rstrip=True, special=True),
        token(first + 2, "<b>", lstrip=True, rstrip=True)]}
    yield "whole words", {**small, "added_tokens": [
        token(first, "word", single_word=True), token(first + 1, "wor"),
        token(first + 2, "日", single_word=True)]}
    yield "after the normaliser", {**small, "added_tokens": [
        token(first, "\u1e69", normalized=True), token(first + 1, "<n>", normalized=True, lstrip=True),
        token(first + 2, "Åx"), token(first + 3, "the", normalized=True, single_word=True)]}
    yield "longest first", {**small, "added_tokens": [
        token(first, "<a>"), token(first + 1, "<a><b>", special=True), token(first + 2, "<b>"),
        token(first + 3, "<a><b><c>"), token(first + 4, "b><c")]}
    yield "decoded through the alphabet", {**small, "added_tokens": [
        token(first, "ĠéĠ"), token(first + 1, "日Ġ"), token(first + 2, "éé")]}
    yield "merges as lines", {**small, "model": {
        **small["model"], "merges": [" ".join(m) for m in small["model"]["merges"]]}}
    vocab = {**small["model"]["vocab"], "Ġcat": first, "xyz": first + 1}
    yield "whole pieces first", {**small, "model": {
        **small["model"], "vocab": vocab, "ignore_merges": True},
        "added_tokens": [token(first + 2, "Ġdog")]}
    yield "whole pieces not first", {**small, "model": {**small["model"], "vocab": vocab}}
    yield "no split and no normaliser", {**small, "normalizer": None, "pre_tokenizer": {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}}
    other = json.loads(json.dumps(small))
    other["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\p{N}{1,3}|(?i:'s)|\S+(?=\s)"
    yield "another expression", other


OPTION_TEXTS = [
    "", " ", "a <l> b<l>c\t\u3000<l>", "<r>  x <r>\n\u0085<r>", "  <b>  <b> ", "<l> <r> <b>",
    "word words sword word, _word word\u0301 word-word wor word", "日 x日 日\u200d 日. 日\u24b6 日\u00b2",
    "s\u0323\u0307s\u0307\u0323 \u1e69 e\u0301 s \u212bx A\u030ax \u00c5x <n>y the them", "<a><b><c <a><b><c> <a><b> <b><c><a>",
    "the cat, xyz dog ĠéĠ 日Ġ éé é", "1234567 it's IT'S\u017f a  b\n\nc", " cat cat xyz xyzzy dog dog",
    "the then there the the", "e\u0301\u0323 \u1100\u1161\u11a8",
]


def option_cases(spec):
    out = []
    for name, variant in option_specs(spec):
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(variant))
        cases = []
        for text in OPTION_TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids,
                          "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        out.append({"name": name, "tokenizer": variant, "cases": cases})
    return out


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit("want a Python with Unicode 14 (3.11)")
    spec = json.loads(DEMO.read_text())
    rng = random.Random(SEED)
    out = bytearray(b"PWTOK1\n")

    cases = encode_cases(spec, rng)
    out += struct.pack("<I", len(cases))
    for index, (mode, text, ids, pieces) in enumerate(cases):
        out += bytes([mode]) + text_bytes(text)
        out += id_list(ids) if index < FULL_ENCODE else id_hash(ids)
        out += pieces

    decodes = decode_cases(spec, rng, 3000)
    out += struct.pack("<I", len(decodes))
    for index, (skip, ids, text) in enumerate(decodes):
        out += bytes([skip]) + id_list(ids)
        out += text_bytes(text) if index < FULL_DECODE else fnv1a(text.encode())

    newer = newer_cases(spec)
    out += struct.pack("<I", len(newer))
    for code, pieces in newer:
        out += varint(code) + pieces

    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "tokenizer_cases.bin").write_bytes(out)
    options = json.dumps(option_cases(spec), ensure_ascii=False, separators=(",", ":"))
    (OUT / "tokenizer_options.json").write_text(options.replace('{"name"', '\n{"name"') + "\n")
    print(f"{len(cases)} encodings, {len(decodes)} decodings, {len(newer)} newer characters, "
          f"{len(out)} bytes, tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
