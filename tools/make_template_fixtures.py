"""Renders templates with Python's Jinja2, as Hugging Face sets it up, and writes what came out.

    python3 tools/make_template_fixtures.py [--public qwen-chat-template.jinja]

Needs jinja2 (3.1). Writes, under tests/golden/text:
  template_features.json  one small template a case (template_snippets.py,
                          template_statements.py and random expressions)
                          with its output, "raise: …" or "fail"
  templates.json          random conversations and, for each and each chat template, a digest of the
                          output or the number of its error
Both are reproducible: one seed, no clock.
"""

import argparse
import datetime
import json
import pathlib
import random
import warnings

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_conversations import make_conversation, make_pools
from template_expressions import random_expression
from template_snippets import CONTEXT, EXPRESSIONS
from template_statements import STATEMENTS

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "text"
NOW = datetime.datetime(2025, 3, 9, 7, 5, 4)
CONVERSATIONS = 4000
RANDOM_EXPRESSIONS = 2500


class Raised(Exception):
    """raise_exception was called."""


class Generation(Extension):
    """{% generation %}: prints its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("body_of", [])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def body_of(self, caller):
        return caller()


def environment():
    # Not optimized: folding constants at compile time changes what a few nonsensical ones give.
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=False,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
    )

    def raise_exception(message):
        raise Raised(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def render(template, context):
    """(True, output), or (False, "raise: …"), or (False, "fail")."""
    try:
        compiled = ENV.from_string(template) if isinstance(template, str) else template
        out = compiled.render(**context)
        out.encode()
        return True, out
    except Raised as error:
        return False, "raise: " + str(error)
    except (Exception, RecursionError):
        return False, "fail"


def features():
    templates = ["{{ " + line + " }}" for line in EXPRESSIONS] + STATEMENTS
    rng = random.Random(20250309)
    cases = []
    for template in templates:
        cases.append(feature(template))
    kept = 0
    failures = 0
    while kept < RANDOM_EXPRESSIONS:
        case = feature("{% set r = " + random_expression(rng) + " %}{{ r }}")
        if "fail" in case:  # most random expressions fail: keep a few of those
            failures += 1
            if failures % 8 != 0:
                continue
        if len(case.get("out", "")) > 200:
            continue
        cases.append(case)
        kept += 1
    return cases


def feature(template):
    ok, out = render(template, CONTEXT)
    if ok and (" at 0x" in out or "method" in out):  # addresses: only that it works
        return {"in": template, "any": True}
    if ok:
        return {"in": template, "out": out}
    return {"in": template, "raise": out[7:]} if out.startswith("raise: ") else {"in": template, "fail": True}


def fnv64(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def conversations(public):
    templates = {"demo": (ROOT / "models" / "demo" / "chat_template.jinja").read_text()}
    for path in sorted((GOLDEN / "templates").glob("*.jinja")):
        templates[path.stem] = path.read_text()
    if public:
        templates["public"] = pathlib.Path(public).read_text()
    compiled = {name: ENV.from_string(text) for name, text in templates.items()}
    rng = random.Random(977)
    messages, tools, kwargs = make_pools(rng)
    errors = []
    rows = []
    counts = {}
    for _ in range(CONVERSATIONS):
        indexes, tool, kwarg, prompt = make_conversation(rng, messages, tools, kwargs)
        context = dict(kwargs[kwarg])
        context.update(messages=[messages[i] for i in indexes], tools=tools[tool],
                       add_generation_prompt=prompt)
        digests = []
        for name, template in compiled.items():
            ok, out = render(template, {"documents": None, **context})
            counts[(name, ok)] = counts.get((name, ok), 0) + 1
            if ok:
                digests.append(fnv64(out.encode()))
            else:
                if out not in errors:
                    errors.append(out)
                digests.append(errors.index(out))
        rows.append([indexes, tool, kwarg, prompt, digests])
    for key, count in sorted(counts.items()):
        print(*key, count)
    return {"templates": list(compiled), "now": NOW.isoformat(), "messages": messages,
            "tools": tools, "kwargs": kwargs, "errors": errors, "conversations": rows}


def write_lines(path, fields):
    """JSON with one line per item of each list, so that differences can be read."""
    parts = []
    for name, value in fields.items():
        dumped = lambda item: json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, list):
            parts.append(f'"{name}":[\n' + ",\n".join(dumped(item) for item in value) + "\n]")
        else:
            parts.append(f'"{name}":' + dumped(value))
    path.write_text("{" + ",\n".join(parts) + "}\n")
    print(path.name, path.stat().st_size, "bytes")


def main():
    warnings.simplefilter("ignore", SyntaxWarning)  # random expressions subscript numbers
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--public", help="the public chat template of the larger checkpoints")
    args = parser.parse_args()
    print("jinja2", jinja2.__version__)
    write_lines(GOLDEN / "template_features.json", {"context": CONTEXT, "cases": features()})
    write_lines(GOLDEN / "templates.json", conversations(args.public))


if __name__ == "__main__":
    main()
