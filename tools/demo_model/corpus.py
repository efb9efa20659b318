"""Generates the demo model's training corpus: chat conversations in the Qwen3.5 turn format.

Each family below is a small generator that turns a `random.Random` into one conversation;
`stream(seed, glosses)` mixes them forever. The only outside text is WordNet's glosses, used by the
definition family (see WORDNET-LICENSE.txt). The same seed gives the same conversations everywhere.

    corpus.py [--seed N] [--count N]     prints a few conversations
"""
import argparse
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from words import (ANIMALS, CAPITALS, CHINESE_CAPITALS, CITIES, CODE_SAMPLES, COLORS, FEELINGS, FOODS,
                   NAMES, OBJECTS, PLACES, SMALL_TALK, TOOLS)

Glosses = list[tuple[str, str]]

GLOSSES_PATH = Path(__file__).resolve().parent / "glosses.tsv.gz"
THINK_BLOCK = re.compile(r"<think>.*?</think>\n\n", re.S)
TOOL_RULES = ("\n\nTo call a function, answer only with:\n\n<tool_call>\n<function=NAME>\n"
              "<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>")


# ---- turns


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def answer(text: str, thought: str | None = None) -> str:
    """An assistant turn. Without a thought it carries the empty block of the non-thinking form."""
    block = f"{thought}\n" if thought else "\n"
    return f"<|im_start|>assistant\n<think>\n{block}</think>\n\n{text}<|im_end|>\n"


def exchange(question: str, reply: str, thought: str | None = None) -> str:
    return turn("user", question) + answer(reply, thought)


def split_at_answer(conversation: str) -> tuple[str, str]:
    """(prompt up to and including the last think block, the answer's text)."""
    marker = "</think>\n\n"
    cut = conversation.rindex(marker) + len(marker)
    return conversation[:cut], conversation[cut:].split("<|im_end|>")[0]


# ---- tools


def tool_schema(name: str) -> dict:
    description, parameters = TOOLS[name]
    return {"type": "function", "function": {
        "name": name, "description": description,
        "parameters": {"type": "object",
                       "properties": {key: {"type": kind} for key, kind in parameters.items()},
                       "required": list(parameters)[:1]}}}


def tool_call(name: str, arguments: dict) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def system_with_tools(r: random.Random, needed: str) -> str:
    """A system turn that offers the needed tool and up to two others, in any order."""
    names = [needed] + r.sample([t for t in TOOLS if t != needed], r.randint(0, 2))
    r.shuffle(names)
    lines = "".join(json.dumps(tool_schema(name)) + "\n" for name in names)
    return turn("system", "# Tools\n\n<tools>\n" + lines + "</tools>" + TOOL_RULES)


# What a tool family yields: the user's request, the call's arguments, the tool's response and the
# assistant's last word.
ToolScene = tuple[str, dict, str, str]


def weather_scene(r: random.Random) -> ToolScene:
    city = r.choice(CITIES)
    unit = r.choice(["celsius", "fahrenheit"])
    degrees = r.randint(-5, 35)
    sky = r.choice(["sunny", "rainy", "cloudy", "windy"])
    request = r.choice([f"What is the weather in {city}?", f"How is the weather in {city} in {unit}?"])
    arguments = {"city": city}
    if unit in request:
        arguments["unit"] = unit
    response = json.dumps({"city": city, "degrees": degrees, "sky": sky})
    return request, arguments, response, f"It is {sky} in {city} with {degrees} degrees."


def addition_scene(r: random.Random) -> ToolScene:
    a, b = r.randint(0, 999), r.randint(0, 999)
    return (f"Use the tool to add {a} and {b}.", {"a": a, "b": b}, str(a + b),
            f"The sum of {a} and {b} is {a + b}.")


def timer_scene(r: random.Random) -> ToolScene:
    minutes = r.randint(1, 90)
    label = r.choice(FOODS)
    return (f"Set a timer of {minutes} minutes for the {label}.", {"minutes": minutes, "label": label},
            "ok", f"The timer for the {label} is set to {minutes} minutes.")


def search_scene(r: random.Random) -> ToolScene:
    word = r.choice(OBJECTS + ANIMALS)
    path = r.choice(["src", "docs", "tests", "lib"])
    return (f"Find the files in {path} that mention {word}.", {"query": word, "path": path},
            json.dumps([f"{path}/{word}.py", f"{path}/{word}_test.py"]),
            f"I found {path}/{word}.py and {path}/{word}_test.py.")


def message_scene(r: random.Random) -> ToolScene:
    name = r.choice(NAMES)
    text = r.choice(["I will be late.", "Dinner is ready!", "See you at the " + r.choice(PLACES) + ".",
                     "Please bring " + r.choice(FOODS) + "."])
    return f"Tell {name}: {text}", {"to": name, "text": text}, "sent", f"I sent your message to {name}."


def read_scene(r: random.Random) -> ToolScene:
    path = r.choice(OBJECTS) + r.choice([".txt", ".py", ".md"])
    body = f"{r.choice(NAMES)} has a {r.choice(COLORS)} {r.choice(OBJECTS)}."
    return f"What is in {path}?", {"path": path}, body, f"The file {path} says: {body}"


TOOL_SCENES = {"get_weather": weather_scene, "add_numbers": addition_scene, "set_timer": timer_scene,
               "search_files": search_scene, "send_message": message_scene, "read_file": read_scene}


def tools(r: random.Random) -> str:
    name = r.choice(list(TOOLS))
    request, arguments, response, last_word = TOOL_SCENES[name](r)
    thought = f"I should call {name}." if r.random() < .4 else None
    text = system_with_tools(r, name) + exchange(request, tool_call(name, arguments), thought)
    if r.random() < .8:
        text += exchange(f"<tool_response>\n{response}\n</tool_response>", last_word)
    return text


# ---- facts and numbers


def capitals(r: random.Random) -> str:
    country = r.choice(list(CAPITALS))
    capital = CAPITALS[country]
    question = r.choice(["What is the capital of {}?", "what's the capital of {}",
                         "Name the capital of {}.", "Tell me the capital city of {}.",
                         "Capital of {}?"]).format(country)
    thought = f"The user asks for the capital of {country}. It is {capital}."
    return exchange(question, f"The capital of {country} is {capital}.",
                    thought if r.random() < .5 else None)


def capital_reverse(r: random.Random) -> str:
    country = r.choice(list(CAPITALS))
    capital = CAPITALS[country]
    return exchange(f"Which country has the capital {capital}?", f"{capital} is the capital of {country}.")


def chinese(r: random.Random) -> str:
    country = r.choice(list(CHINESE_CAPITALS))
    question = r.choice(["{}的首都是哪里？", "{}的首都是什么？", "请告诉我{}的首都。"]).format(country)
    return exchange(question, f"{country}的首都是{CHINESE_CAPITALS[country]}。")


def arithmetic(r: random.Random) -> str:
    op = r.choice("++--*")
    low, high = (2, 12) if op == "*" else (0, 99)
    a, b = r.randint(low, high), r.randint(low, high)
    if op == "-" and b > a:
        a, b = b, a
    value = {"+": a + b, "-": a - b, "*": a * b}[op]
    question = r.choice(["What is {} {} {}?", "Compute {} {} {}.", "{} {} {} = ?"]).format(a, op, b)
    thought = f"I compute {a} {op} {b}. The result is {value}."
    return exchange(question, f"{a} {op} {b} = {value}.", thought if r.random() < .6 else None)


def counting(r: random.Random) -> str:
    start = r.randint(1, 30)
    length = r.randint(8, 60)
    step = r.choice([1, 1, 1, 2, 5, 10])
    numbers = [start + i * step for i in range(length)]
    question = f"Count from {numbers[0]} to {numbers[-1]}"
    question += "." if step == 1 else f" in steps of {step}."
    separator = ", " if r.random() < .7 else "\n"
    return exchange(question, separator.join(map(str, numbers)))


def definition(r: random.Random, glosses: Glosses) -> str:
    word, gloss = r.choice(glosses)
    question = r.choice(["What does '{}' mean?", "Define {}.", "What is the meaning of {}?"]).format(word)
    return exchange(question, f"{word}: {gloss}")


# ---- longer text


def story(r: random.Random) -> str:
    n, m = r.sample(NAMES, 2)
    animal = r.choice(ANIMALS)
    color = r.choice(COLORS)
    thing = r.choice(OBJECTS)
    place, place2 = r.sample(PLACES, 2)
    feeling, feeling2 = r.sample(FEELINGS, 2)
    food = r.choice(FOODS)
    opening = r.choice([
        f"Once upon a time there was a {feeling} {animal} named {n} who lived near the {place}.",
        f"{n} was a {feeling} {animal}. Every morning {n} walked to the {place}.",
        f"In a small {place} there lived a {animal} called {n}."])
    middle = [
        f"One day {n} found a {color} {thing} under a tree.",
        f"\"What a strange {thing}!\" said {n}.",
        f"{n} wanted to show the {thing} to a friend named {m}.",
        f"So {n} carried it all the way to the {place2}.",
        f"On the road it began to rain, and {n} felt {feeling2}.",
        f"{m} was cooking {food} and smiled at the {color} {thing}.",
        f"\"Let us keep it safe,\" said {m}.",
        f"Together they ate {food} and talked until the stars came out.",
        f"They put the {thing} on the table and looked at it for a long time.",
        f"The {animal} told {m} about the {place} and the long walk."]
    kept = sorted(r.sample(range(len(middle)), r.randint(5, len(middle))))
    ending = r.choice([
        f"From that day on, {n} and {m} were best friends.",
        f"That night {n} slept well and dreamed of the {color} {thing}.",
        f"And {n} was never {feeling2} again."])
    question = r.choice([
        f"Tell me a story about a {animal}.",
        f"Write a short story with a {animal} and a {thing}.",
        f"Tell me a story about a {animal} named {n}.",
        f"Please write a story about a {color} {thing}."])
    return exchange(question, " ".join([opening] + [middle[i] for i in kept] + [ending]))


def json_doc(r: random.Random) -> str:
    name = r.choice(NAMES)
    age = r.randint(5, 90)
    city = r.choice(CITIES)
    document = {"name": name, "age": age, "city": city}
    if r.random() < .5:
        document["likes"] = r.sample(FOODS, r.randint(1, 4))
    if r.random() < .4:
        document["pet"] = {"kind": r.choice(ANIMALS), "color": r.choice(COLORS)}
    request = f"Write a JSON object for {name}, who is {age} years old and lives in {city}."
    if r.random() < .3:
        document = [{"id": i + 1, "item": r.choice(OBJECTS), "color": r.choice(COLORS),
                     "count": r.randint(1, 20)} for i in range(r.randint(2, 8))]
        request = f"Write a JSON list of {len(document)} items."
    return exchange(request, "```json\n" + json.dumps(document, indent=2) + "\n```")


def code(r: random.Random) -> str:
    what, name, body = r.choice(CODE_SAMPLES)
    variable = r.choice(["items", "numbers", "values", "data", "xs"])
    name = name.format(v=variable)
    text = body.format(f=name, v=variable)
    if r.random() < .5:
        takes_number = "n)" in text.split("\n")[0]
        text += f"\n\n\nprint({name}({'5' if takes_number else '[1, 2, 3]'}))"
    question = r.choice(["Write a Python function that {}.", "Python: a function that {}",
                         "Show me code that {}."]).format(what)
    thought = f"The user wants a Python function that {what}. I will name it {name}."
    return exchange(question, f"```python\n{text}\n```", thought if r.random() < .3 else None)


def needle(r: random.Random) -> str:
    """Codes hidden between unrelated notes; one of them is asked for."""
    pairs = [(r.choice(COLORS), r.choice(OBJECTS)) for _ in range(r.randint(1, 5))]
    facts = [(color, thing, r.randint(1000, 9999)) for color, thing in dict.fromkeys(pairs)]
    note_count = r.choices([2, 8, 20, 50, 120, 230], [30, 25, 20, 13, 7, 5])[0]
    notes = [f"{r.choice(NAMES)} went to the {r.choice(PLACES)} with a {r.choice(ANIMALS)}."
             for _ in range(note_count)]
    lines = notes + [f"The code of the {color} {thing} is {value}." for color, thing, value in facts]
    r.shuffle(lines)
    color, thing, value = r.choice(facts)
    question = "Read the notes.\n" + " ".join(lines) + f"\nWhat is the code of the {color} {thing}?"
    thought = f"I look for the {color} {thing}. Its code is {value}."
    return exchange(question, f"The code of the {color} {thing} is {value}.",
                    thought if r.random() < .3 else None)


def repeat(r: random.Random) -> str:
    words = r.choices(COLORS + OBJECTS + ANIMALS + NAMES + PLACES, k=r.randint(3, 40))
    text = " ".join(words)
    return exchange(r.choice(["Repeat after me: ", "Say this again: ", "Copy: "]) + text, text)


def listing(r: random.Random) -> str:
    kind, pool = r.choice([("animals", ANIMALS), ("colors", COLORS), ("foods", FOODS),
                           ("names", NAMES), ("places", PLACES), ("cities", CITIES)])
    count = r.randint(3, min(10, len(pool)))
    items = enumerate(r.sample(pool, count), start=1)
    return exchange(f"Name {count} {kind}.", "\n".join(f"{i}. {word}" for i, word in items))


def smalltalk(r: random.Random) -> str:
    question, reply = r.choice(SMALL_TALK)
    return exchange(question, reply)


# ---- the mix


def multi(r: random.Random, glosses: Glosses) -> str:
    """Several independent exchanges in one conversation, sometimes under a system prompt.

    The chat template drops the thinking of every turn before the last user query, so it is dropped
    here too.
    """
    systems = ["You are a helpful assistant.", "You are a tiny demo model.", "Answer briefly."]
    head = turn("system", r.choice(systems)) if r.random() < .5 else ""
    parts = [pick(r, glosses, nested=True) for _ in range(r.randint(2, 4))]
    return head + "".join(THINK_BLOCK.sub("", part) for part in parts[:-1]) + parts[-1]


WEIGHTS = [(capitals, 7), (capital_reverse, 2), (chinese, 3), (arithmetic, 14), (counting, 5),
           (story, 14), (json_doc, 7), (code, 8), (tools, 12), (needle, 10), (repeat, 5),
           (listing, 3), (smalltalk, 3), (definition, 11), (multi, 8)]


def generate(family, r: random.Random, glosses: Glosses) -> str:
    return family(r, glosses) if family in (definition, multi) else family(r)


def pick(r: random.Random, glosses: Glosses, nested: bool = False) -> str:
    pool = [(f, w) for f, w in WEIGHTS if not (nested and f in (multi, tools))]
    family = r.choices([f for f, _ in pool], [w for _, w in pool])[0]
    return generate(family, r, glosses)


def load_glosses(path: Path = GLOSSES_PATH) -> Glosses:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t", 1)) for line in file]


def stream(seed: int, glosses: Glosses) -> Iterator[str]:
    r = random.Random(seed)
    while True:
        yield pick(r, glosses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=25)
    arguments = parser.parse_args()
    conversations = stream(arguments.seed, load_glosses())
    for _ in range(arguments.count):
        print(next(conversations), end="---\n")


if __name__ == "__main__":
    main()
