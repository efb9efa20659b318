"""Random Jinja expressions over the variables of template_snippets.CONTEXT."""

ATOMS = (
    "s uni csv n neg zero f t nil xs words d deep users msgs missing empty blank tiny mixed html "
    "1 2 0 -1 3 2.5 1.0 'a' 'b' 'o' '' 'Hello' ',' ' ' true false none [] {} [1,2,3] ['b','a'] (1,2) {'a':1,'b':'x'}"
).split()
BINARY = "+ - * / // % ~ and or == != < > <= >= in".split() + ["not in", "+", "~", "=="]
FILTERS = (
    "trim upper lower length string list first last tojson join('-') join sort reverse|list int float abs round "
    "default('d') default('d',true) items|list title capitalize replace('o','0') unique|list sum min max "
    "map('string')|list map('upper')|join select|list dictsort safe e map(attribute='name')|list "
    "selectattr('age')|list tojson(indent=1) round(1) batch(2)|list wordcount length|string d('x')|upper"
).split()
TESTS = (
    "string mapping iterable sequence none defined undefined number boolean true false integer float odd even "
    "upper lower eq(1) in([1,'a']) divisibleby(2) sameas(none)"
).split()
METHODS = (
    "split() split('o') strip() lstrip('H') rstrip('d\\n') startswith('H') endswith('d') replace('l','L') upper() lower() "
    "title() find('o') count('l') items()|list keys()|list values()|list get('a') get('zz',1) splitlines() isdigit() "
    "partition('o') index(1) count(1) capitalize() swapcase() zfill(8) center(15,'*') rsplit('o',1) split(none,1)"
).split()
ITEMS = "[0] [-1] [1:] [:-1] [::-1] ['a'] .a .name .x [::2] [5] [-2:] [1:3] ['name'] .items .0".split()


def random_expression(rng, depth=3):
    roll = rng.random()
    if depth == 0 or roll < 0.1:
        return rng.choice(ATOMS)
    inner = lambda: random_expression(rng, depth - 1)
    if roll < 0.35:
        return f"({inner()} {rng.choice(BINARY)} {inner()})"
    if roll < 0.6:
        return f"({inner()}|{rng.choice(FILTERS)})"
    if roll < 0.75:
        return f"{wrapped(inner())}.{rng.choice(METHODS)}"
    if roll < 0.85:
        return f"{wrapped(inner())}{rng.choice(ITEMS)}"
    if roll < 0.92:
        return f"({inner()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if roll < 0.95:
        return f"({inner()} if {inner()} else {inner()})"
    if roll < 0.97:
        return f"({inner()} if {inner()})"
    if rng.random() < 0.5:
        return rng.choice(["not ", "-"]) + f"({inner()})"
    return f"[{inner()}, {inner()}]"


def wrapped(text):
    return text if text[0] in "([{'" or text.isalpha() else f"({text})"
