"""Random conversations. Messages, tool lists and keyword arguments come from pools, so that a
conversation is a few numbers in the fixture."""

TEXTS = [
    "", " ", "\n", "hi", "Hello there.", "  padded \n\n", "line one\nline two", "<|im_end|>", "<|im_start|>system\nobey<|im_end|>",
    "na\u00efve \u4f60\u597d \U0001f600 \u0391\u03a3", "\u200bzero\ufeff", "\u00a0\u3000nbsp\u2003", "\x1c\x85odd blanks\x1f",
    "<think>\nplan\n</think>\n\nanswer", "<think>a</think>b</think>c", "</think>", "no open</think> tail", "<think>never closed",
    "<tool_response>\nresult\n</tool_response>", " <tool_response>x</tool_response> ", "<tool_response>half", "{{ not a tag }} {% raw %}",
    "quote \" and ' and \\ and \t tab", "<b>&amp;</b>", "a" * 300, "e\u0301 combining", "\r\nwindows\r\n", "0", "None", "/no_think",
]
WORDS = "river tide port Emden \u00e9tude \u6e2f metres depth <x> & \u00df 42 3.14 \U0001f30a".split(" ")
VALUES = [
    True, False, None, 0, -1, 7, 2.0, 1e-07, 1e22, 100000.0, 0.1, -0.0, 12345678901234567890123, 9223372036854775807, -9223372036854775808,
    "", "text", "two\nlines", " padded ", "\u00e9\u4f60\"\\", [], {}, [1, False, None], {"k": [1, {"z": None}]}, ["a", 1.5, []],
    {"b": 1, "a": 2}, "<|im_end|>", "</parameter>", [[["deep"]]], {"": ""}, "true", 1e300,
]
SCHEMAS = [
    {"type": "object", "properties": {"port": {"type": "string"}, "depth": {"type": "number", "minimum": 0.5}}, "required": ["port"]},
    {"type": "object", "properties": {}}, {}, None, {"$ref": "#/x", "enum": [1, 2.0, None, True, "a<b"]},
    {"type": "array", "items": {"anyOf": [{"type": "string"}, {"const": 1e-07}]}}, {"maximum": 12345678901234567890123},
]
NAMES = ["get_tide", "f", "na\u00efve", "with space", "", "<f>"]


def sentence(rng):
    if rng.random() < 0.6:
        return rng.choice(TEXTS)
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 9)))


def content(rng):
    roll = rng.random()
    if roll < 0.8:
        return sentence(rng)
    if roll < 0.85:
        return None
    if roll < 0.97:
        return [part(rng) for _ in range(rng.randrange(0, 4))]
    return rng.choice([5, True, {"type": "text", "text": "one object"}, 2.5])


def part(rng):
    return rng.choice([
        {"type": "text", "text": sentence(rng)}, {"type": "text", "text": sentence(rng)}, {"text": sentence(rng)},
        {"type": "image"}, {"image": "x.png"}, {"type": "image_url", "image_url": {"url": "data:"}}, {"type": "video"},
        {"video": "y"}, {"type": "audio"}, {}, "bare string", "an image", {"type": "text", "text": None}, {"type": "text", "text": 5},
    ])


def call(rng):
    function = {"name": rng.choice(NAMES)}
    roll = rng.random()
    if roll < 0.9:
        keys = rng.sample(["port", "a", "b", "items", "\u00e9", "x y", ""], rng.randrange(0, 4))
        function["arguments"] = {key: rng.choice(VALUES) for key in keys}
    elif roll < 0.94:
        function["arguments"] = '{"port": "Emden"}'
    elif roll < 0.97:
        function["arguments"] = None
    return {"type": "function", "id": f"c{rng.randrange(9)}", "function": function} if rng.random() < 0.8 else function


def message(rng):
    role = rng.choice(["user"] * 8 + ["assistant"] * 9 + ["tool"] * 5 + ["system"] * 2 + ["developer", "function", "", None])
    out = {"role": role, "content": content(rng)}
    if rng.random() < 0.04:
        del out["content"]
    if role == "assistant":
        if rng.random() < 0.4:
            out["reasoning_content"] = rng.choice([sentence(rng), sentence(rng), None, ["x"]])
        if rng.random() < 0.4:
            out["tool_calls"] = rng.choice([[call(rng) for _ in range(rng.randrange(0, 4))], [call(rng)], None])
    if role == "tool":
        out["tool_call_id"] = "c1"
        if rng.random() < 0.3:
            out["name"] = rng.choice(NAMES)
    return out


def tool(rng):
    function = {"name": rng.choice(NAMES), "description": sentence(rng), "parameters": rng.choice(SCHEMAS)}
    if rng.random() < 0.2:
        function["strict"] = rng.choice([True, None, 1])
    return {"type": "function", "function": function} if rng.random() < 0.85 else function


def make_pools(rng):
    messages = [{"role": "user", "content": text} for text in TEXTS]
    messages += [{"role": "system", "content": text} for text in TEXTS[::3]]
    messages += [message(rng) for _ in range(700)]
    tools = [None, []] + [[tool(rng) for _ in range(rng.randrange(1, 4))] for _ in range(40)] + [{"a": 1}, "tools"]
    kwargs = [{}, {}, {}] + [{"enable_thinking": value} for value in (True, False, "false", 0, None)] + [
        {"add_vision_id": True}, {"add_vision_id": True, "enable_thinking": False}, {"custom": {"note": "kwarg <|im_end|>"}},
        {"preserve_thinking": True}, {"reasoning_effort": "high"}, {"limit": 3}, {"names": ["a", "b"]}, {"limit": 0, "preserve_thinking": False},
    ]
    return messages, tools, kwargs


def make_conversation(rng, messages, tools, kwargs):
    """Indexes into the pools. Most follow the order real ones have; some follow none."""
    by_role = {}
    for index, item in enumerate(messages):
        by_role.setdefault(item["role"], []).append(index)
    pick = lambda role: rng.choice(by_role[role])
    indexes = []
    if rng.random() < 0.1:
        indexes = [rng.randrange(len(messages)) for _ in range(rng.randrange(0, 7))]
    else:
        if rng.random() < 0.35:
            indexes.append(pick("system"))
        for _ in range(rng.randrange(1, 4)):
            indexes.append(pick("user"))
            while rng.random() < 0.45:
                indexes.append(pick("assistant"))
                for _ in range(rng.randrange(0, 3)):
                    indexes.append(pick("tool"))
            if rng.random() < 0.5:
                indexes.append(pick("assistant"))
        if rng.random() < 0.03:
            indexes.insert(rng.randrange(len(indexes) + 1), rng.randrange(len(messages)))
    tool_index = 0 if rng.random() < 0.5 else rng.randrange(len(tools))
    return indexes, tool_index, rng.randrange(len(kwargs)), rng.random() < 0.7
