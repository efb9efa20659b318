"""Texts that a tokenizer could get wrong, made from a seed; used by make_tokenizer_fixture.py.

Every character is one that Unicode 14 knows (or will never assign).
"""

import unicodedata

BLANKS = [chr(c) for c in (
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
    0x205F, 0x3000)]
NOT_BLANKS = [chr(c) for c in (0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00AD, 0x1C, 0x1F, 0)]
TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<tool_call>",
    "</tool_call>", "<|fim_prefix|>", "<|repo_name|>", "<tool_response>", "</tool_response>", "<think>",
    "</think>"]
WORDS = (
    "the river was wide and we crossed it before noon with two boats one dog and no map because nobody "
    "had thought of rain Answer in three sentences please compute integral banana HTTP JSON camelCase "
    "über naïve façade Ångström coöperate señor Straße Łódź İstanbul résumé").split()
SCRIPTS = [
    "हम कल नदी के किनारे मिलेंगे।", "நாங்கள் நாளை ஆற்றங்கரையில் சந்திப்போம்", "আমরা কাল নদীর ধারে দেখা করব।",
    "మేము రేపు నది ఒడ్డున కలుస్తాము", "ನಾವು ನಾಳೆ ನದಿಯ ದಡದಲ್ಲಿ", "നാളെ നദിക്കരയിൽ കാണാം", "අපි හෙට ගඟ අසල හමුවෙමු",
    "พรุ่งนี้เราจะพบกันที่ริมแม่น้ำ", "ພວກເຮົາຈະພົບກັນ", "ကျွန်ုပ်တို့ မနက်ဖြန်", "យើងនឹងជួបគ្នា", "མི་རྣམས་ཆུ་འགྲམ",
    "سنلتقي غدًا عند ضفة النهر", "ما فردا کنار رودخانه‌ایم", "נִפָּגֵשׁ מָחָר לְיַד הַנָּהָר", "ܢܬܚܙܐ ܡܚܪ",
    "我们明天在河边见面，好吗？", "明日は川のそばで会いましょう。パーティー", "내일 강가에서 만나요", "Зустрінемось завтра біля річки",
    "Θα συναντηθούμε αύριο δίπλα στο ποτάμι", "ნახვამდის ხვალამდე", "Կհանդիպենք վաղը", "ነገ በወንዙ ዳር እንገናኝ",
    "Tiếng Việt: hẹn gặp ở bờ sông", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ", "ꦱꦸꦒꦼꦁ ꦫꦮꦸꦃ", "𐍈𐌴𐍂 𐌹𐍃𐍄", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 ①②③ Ⅳ½"]
CODE = [
    "def ", "return ", "(", ")", "{\n", "}\n", "[", "]", "self.", "->", "==", "!=", "&&", "||", "::", "//", "/* ",
    " */", "#include <vector>\n", "    ", "\t", "\t\t", "x", "i", "foo_bar", "FooBar", "0x1F", "3.14e-7", "10_000",
    "\"str\"", "'c'", ";\n", ";\r\n", ",", " ", "\n\n", "=>", "$HOME", "@decorator\n", "%d", "\\n", "~", "`", "^",
    "https://a.example/b?c=d&e#f", "<div class='x'>", "</div>", "<!-- ", " -->", "...", "--", "++i", "lambda: "]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]


def assigned(code):
    return unicodedata.category(chr(code)) not in ("Cn", "Cs")


def usable(code):
    """Assigned, or never to be: the 66 noncharacters."""
    return assigned(code) or (code & 0xFFFE) == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def is_bulk(code):
    """Han, Hangul syllables and private use: many characters, one behaviour; sampled."""
    return (0x3400 <= code <= 0x9FFF or 0xAC00 <= code <= 0xD7A3 or 0xE000 <= code <= 0xF8FF
            or 0x17000 <= code <= 0x18CFF or 0x20000 <= code <= 0x3FFFF or code >= 0xF0000)


ALL = [c for c in range(0x110000) if usable(c)]
MARKS = [chr(c) for c in ALL if unicodedata.category(chr(c)).startswith("M")]
COMBINING = [m for m in MARKS if unicodedata.combining(m)]
DECOMPOSING = [chr(c) for c in ALL if unicodedata.decomposition(chr(c))
               and not unicodedata.decomposition(chr(c)).startswith("<")]


def every_character(rng):
    """Each assigned character outside the bulk once, six to a text, in random surroundings."""
    codes = [c for c in ALL if not is_bulk(c)]
    codes += rng.sample([c for c in ALL if is_bulk(c)], 3000)
    between = ["", "", " ", "a", ".", "1", "\n", "'", "e", "\u0301"]
    for at in range(0, len(codes), 6):
        group = codes[at : at + 6]
        yield "".join(chr(c) + rng.choice(between) for c in group)


def random_planes(rng, count):
    by_plane = [[c for c in ALL if c >> 16 == plane] for plane in range(17)]
    by_plane = [codes for codes in by_plane if codes]
    for _ in range(count):
        yield "".join(chr(rng.choice(rng.choice(by_plane))) for _ in range(rng.randrange(1, 9)))


def compositions(rng, count):
    bases = list("aeiouAEOUnszcyqLα\u03c9ι\u0418и\u05d0\u0627\u0915\u0928\u09c7\u0b47\u0bc6\u0dd9\u1025"
                 "\u304b\u30cf日한하\u1100\u1ea5ǖ\u01d5\u212b\u2126\u1e9b\u0f71\U00011099\U0001d157")
    common = list("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030c\u0323\u0327\u0328\u0331\u0338"
                  "\u0342\u0345\u0313\u093c\u09be\u0b56\u0bbe\u0dcf\u102e\u3099\u309a\u0344\u0341\u0f72\u0f74")
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 5)):
            out.append(rng.choice(bases) if rng.random() < 0.8 else rng.choice(DECOMPOSING))
            pool = common if rng.random() < 0.7 else COMBINING
            out += [rng.choice(pool) for _ in range(rng.randrange(0, 4))]
            out.append(rng.choice(["", "", " ", "x"]))
        yield "".join(out)


def jamo(rng, count):
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 5)):
            kind = rng.randrange(5)
            if kind == 0:
                out.append(chr(0xAC00 + rng.randrange(11172)))
            if kind in (1, 2, 3):
                out.append(chr(0x1100 + rng.randrange(0x15)))
            if kind in (1, 2):
                out.append(chr(0x1161 + rng.randrange(0x17)))
            if kind in (0, 2, 4):
                out.append(chr(0x11A7 + rng.randrange(0x1E)))
            out.append(rng.choice(["", "", "", " ", "\u302e"]))
        yield "".join(out)


def emoji(rng, count):
    people = list("👨👩👧👦🧑👶🏳🏴❤🔥💻🚀🌈✋👍🐻❄☠⚕✈")
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 6)):
            out.append(rng.choice(people))
            out.append(rng.choice(["", "", chr(rng.randrange(0x1F3FB, 0x1F400))]))
            out.append(rng.choice(["", "", "\ufe0f", "\ufe0e"]))
            out.append(rng.choice(["\u200d", "\u200d", "", " ", "a", "\n"]))
        out.append(rng.choice(["", "🇩🇪🇫🇷", "1\ufe0f\u20e3", "\U000e0067\U000e007f", " ok"]))
        yield "".join(out)


def blanks(rng, count):
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 5)):
            pool = rng.choice([BLANKS, [" "], [" ", "\t"], [" ", "\n"], ["\r", "\n"], BLANKS + NOT_BLANKS])
            out += [rng.choice(pool) for _ in range(rng.randrange(1, 7))]
            out.append(rng.choice(["", "a", "word", ".", "7", "'s", "é", "\u0301", "日", "<think>"]))
        yield "".join(out)


def control_texts(rng, count):
    """Added tokens, whole, cut and doubled, in text."""
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 6)):
            token = rng.choice(TOKENS)
            kind = rng.randrange(6)
            if kind == 0:
                token = token[: rng.randrange(1, len(token))]
            elif kind == 1:
                token = token[rng.randrange(1, len(token)) :]
            elif kind == 2:
                token = "<" + token + ">"
            out.append(token)
            out.append(rng.choice(["", "", "\n", " ", "user\n", rng.choice(WORDS), "\u0301", "\n\n", "'s"]))
        yield "".join(out)


def joined(rng, count, pool, low, high, separators):
    for _ in range(count):
        yield "".join(rng.choice(pool) + rng.choice(separators) for _ in range(rng.randrange(low, high)))


def contractions(rng, count):
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 4)):
            tail = "".join(rng.choice([c, c.upper()]) for c in rng.choice(CONTRACTIONS))
            if rng.random() < 0.1:
                tail = tail.replace("s", "\u017f").replace("'", "\u2019")
            out.append(rng.choice(["I", "you", "they", "", "DON", " ", "é", "4", "日", "''"]) + tail)
            out.append(rng.choice([" ", "", "x", "\n", "'", "\u0301"]))
        yield "".join(out)


def random_bytes(rng, count):
    leads = b"ab \n\x80\xbf\xc0\xc3\xa9\xe0\xa0\xe4\xbd\xa0\xed\x9f\xf0\x9f\x98\x8a\xf4\x8f\xff"
    for _ in range(count):
        size = rng.randrange(1, 16)
        pool = leads if rng.random() < 0.6 else bytes(range(256))
        text = bytes(rng.choice(pool) for _ in range(size)).decode(errors="replace")
        if all(usable(ord(c)) for c in text):
            yield text


def script_texts(rng, count):
    for _ in range(count):
        text = rng.choice(SCRIPTS)
        at = rng.randrange(len(text))
        cut = text[at : at + rng.randrange(2, 20)]
        yield rng.choice(["", " ", rng.choice(WORDS), "\n"]) + cut + rng.choice(["", " 42", rng.choice(SCRIPTS)[:6]])


def long_runs(rng):
    for unit in ("a", " ", "\n", "\r\n", "7", ".", "日", "\u0301", "e\u0301", "\u0301\u0323", "abc", "the", " the",
                 "<", "<|im_end|>", "한", "\u1100\u1161", "😀", "\u200d", "\t ", "'s", "\u3000", "no", "xyzzy"):
        for size in (33, 100, 900):
            text = (unit * size)[:size]
            yield text
            yield text + rng.choice(["a", " b", "\n", "!"])
    for _ in range(30):
        yield "".join(rng.choice("aeinorst") for _ in range(700))


def all_texts(rng):
    yield ""
    yield from every_character(rng)
    yield from random_planes(rng, 1200)
    yield from compositions(rng, 2500)
    yield from jamo(rng, 700)
    yield from emoji(rng, 1000)
    yield from blanks(rng, 2500)
    yield from control_texts(rng, 1200)
    yield from joined(rng, 1200, CODE, 2, 10, [""])
    yield from joined(rng, 700, list("0123456789") + ["12", "2026", "1,000", "3.5", "²", "٣", "१", "Ⅷ", "-"], 1, 9,
                      ["", "", " ", "a"])
    yield from contractions(rng, 900)
    yield from joined(rng, 600, WORDS + ["", " "], 1, 6, ["\r\n", "\n", "\r", "\r\r\n", " \r\n ", "\n\r"])
    yield from random_bytes(rng, 1400)
    yield from script_texts(rng, 1800)
    yield from joined(rng, 1200, WORDS, 2, 8, [" ", " ", ", ", ". ", "-", "  "])
    yield from long_runs(rng)
