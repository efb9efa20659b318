"""The schema compiler against a JSON Schema validator, on random schemas.

For each schema: texts drawn from the grammar satisfy it; values that satisfy it are admitted, if they are
written as the grammar writes them; values that do not are refused.
usage: random_schemas_test.py PROBE [SCHEMAS] [SEED]    exit code 77: skipped, no jsonschema here
"""

import json
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: the package python3-jsonschema is not installed")
    sys.exit(77)

PATTERNS = ["^[a-c]+$", "^\\d{2,4}$", "b", "^(a|bc){1,3}$", "^[^\"x]{0,3}$", "^x.*y$"]
FORMATS = ["date", "uuid", "ipv4", "email", "date-time", "time"]
LONG_NUMBER = re.compile(r"\d{15}|\d{8}\.\d{6}")
KEY_PATTERNS = ["^[a-c]", "e", "^.{1,2}$"]
KEYS = ["a", "b", "cc", "name", "é", "x y", "\"q\"", ""]
CHECKER = jsonschema.draft202012_format_checker


def schema_of(rng, depth, definitions):
    """A random schema out of the supported keywords."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "types"]
    if depth > 0:
        kinds += ["object"] * 4 + ["array"] * 3 + ["anyOf", "allOf", "ref", "any", "not", "if", "oneOf"]
    kind = rng.choice(kinds)
    if kind == "string":
        return string_schema(rng)
    if kind in ("integer", "number"):
        return number_schema(rng, kind)
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": [value_of(rng, 1) for _ in range(rng.randint(1, 4))]}
    if kind == "const":
        return {"const": value_of(rng, 2)}
    if kind == "types":
        return {"type": rng.sample(["string", "integer", "null", "boolean"], rng.randint(1, 3))}
    if kind == "any":
        return rng.choice([True, {}])
    if kind == "anyOf":
        return {"anyOf": [schema_of(rng, depth - 1, definitions) for _ in range(rng.randint(1, 3))]}
    if kind == "not":
        return {**schema_of(rng, 0, definitions), "not": schema_of(rng, rng.randint(0, 1), definitions)}
    if kind == "if":
        parts = {key: schema_of(rng, rng.randint(0, 1), definitions) for key in ("if", "then", "else")}
        if rng.random() < 0.3:
            del parts[rng.choice(["then", "else"])]
        return parts
    if kind == "oneOf":
        return {"oneOf": [schema_of(rng, rng.randint(0, 1), definitions) for _ in range(rng.randint(2, 3))]}
    if kind == "allOf":
        return {"allOf": [object_schema(rng, depth - 1, definitions), {"required": rng.sample(KEYS, 1)}]}
    if kind == "ref":
        return {"$ref": "#/$defs/" + rng.choice(definitions)}
    return (object_schema if kind == "object" else array_schema)(rng, depth, definitions)


def string_schema(rng):
    schema = {"type": "string"}
    if rng.random() < 0.3:
        schema["minLength"] = rng.randint(0, 4)
    if rng.random() < 0.3:
        schema["maxLength"] = rng.randint(schema.get("minLength", 0), 9)
    if rng.random() < 0.25:
        schema["pattern"] = rng.choice(PATTERNS)
    elif rng.random() < 0.2:
        schema = {"type": "string", "format": rng.choice(FORMATS)}
    if rng.random() < 0.15:
        schema["not"] = rng.choice([{"pattern": rng.choice(PATTERNS)}, {"enum": ["", "a", "é", 3]},
                                    {"const": "a\"b"}, {"minLength": 4}])
    return schema


def number_schema(rng, kind):
    schema = {"type": kind}
    low = rng.choice([-1000, -17, -1, 0, 0.5, 3, 99.75, 1e4]) + rng.randint(-3, 3)
    if rng.random() < 0.5:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
    if rng.random() < 0.5:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 10.25, 5000])
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([2, 3, 7, 12, 0.5, 0.25])
    if rng.random() < 0.1:
        schema["not"] = {"enum": rng.sample([0, 1, 2, 12, 0.5, 99.75, "a", None], 3)}
    return schema


def object_schema(rng, depth, definitions):
    keys = rng.sample(KEYS, rng.randint(0, 4))
    schema = {"type": "object",
              "properties": {key: schema_of(rng, depth - 1, definitions) for key in keys}}
    if keys and rng.random() < 0.7:
        schema["required"] = rng.sample(keys, rng.randint(0, len(keys)))
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([False, True, schema_of(rng, 0, definitions)])
    if rng.random() < 0.2:
        schema["patternProperties"] = {pattern: schema_of(rng, 0, definitions)
                                       for pattern in rng.sample(KEY_PATTERNS, rng.randint(1, 2))}
    if rng.random() < 0.15:
        schema["propertyNames"] = rng.choice([{"enum": rng.sample(KEYS, 3)}, {"maxLength": 2},
                                              {"pattern": rng.choice(KEY_PATTERNS)}, {"type": "string"}])
    if rng.random() < 0.2:
        schema["minProperties"] = rng.randint(0, 3)
    if rng.random() < 0.2:
        schema["maxProperties"] = schema.get("minProperties", 0) + rng.randint(0, 2)
    if rng.random() < 0.15:
        one, other = rng.sample(KEYS, 2)
        schema[rng.choice(["dependentRequired", "dependencies"])] = {one: [other]}
    if rng.random() < 0.1:
        schema["not"] = {"required": rng.sample(KEYS, rng.randint(1, 2))}
    return schema


def array_schema(rng, depth, definitions):
    schema = {"type": "array"}
    if rng.random() < 0.8:
        schema["items"] = schema_of(rng, depth - 1, definitions)
    if rng.random() < 0.25:
        schema["prefixItems"] = [schema_of(rng, depth - 1, definitions) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.4:
        schema["minItems"] = rng.randint(0, 3)
    if rng.random() < 0.4:
        schema["maxItems"] = schema.get("minItems", 0) + rng.randint(0, 3)
    if rng.random() < 0.2:
        schema["items"] = rng.choice([{"enum": ["a", "b", 1, None, 0.5]}, {"type": ["boolean", "null"]}])
        schema["uniqueItems"] = True
    elif rng.random() < 0.2:
        schema["contains"] = schema_of(rng, 0, definitions)
        if rng.random() < 0.4:
            schema["minContains"] = rng.randint(0, 2)
        if rng.random() < 0.4:
            schema["maxContains"] = schema.get("minContains", 1) + rng.randint(0, 1)
    return schema


def document_of(rng):
    definitions = ["one", "two"]
    schema = schema_of(rng, 3, definitions)
    if isinstance(schema, bool):
        schema = {}
    schema = dict(schema)
    schema["$defs"] = {name: schema_of(rng, 2, definitions) for name in definitions}
    return schema


def value_of(rng, depth):
    kind = rng.choice(["text", "text", "integer", "number", "other"] + ["list", "object"] * (depth > 0))
    if kind == "text":
        return rng.choice(["", "a", "abc", "b", "é", "a\"b", "x\ny", "12", "2024-02-29", "bcbc", "😀", "xy"])
    if kind == "integer":
        return rng.choice([0, 1, -1, 2, 12, 99, 1000, -18])
    if kind == "number":
        return rng.choice([0.5, -1.25, 99.75, 3.5, 10000.125])
    if kind == "other":
        return rng.choice([None, True, False])
    if kind == "list":
        return [value_of(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    return {key: value_of(rng, depth - 1) for key in rng.sample(KEYS, rng.randint(0, 4))}


def value_for(rng, schema, root, depth):
    """A value that has a chance to satisfy the schema, with members in the order of its properties."""
    if isinstance(schema, bool) or depth > 8 or rng.random() < 0.04:
        return value_of(rng, 1)
    if "$ref" in schema:
        return value_for(rng, root["$defs"][schema["$ref"].split("/")[-1]], root, depth + 1)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        return value_for(rng, rng.choice(schema["anyOf"]), root, depth + 1)
    for key in ("then", "else"):
        if key in schema:
            return value_for(rng, schema[key], root, depth + 1)
    if "oneOf" in schema:
        return value_for(rng, rng.choice(schema["oneOf"]), root, depth + 1)
    if "allOf" in schema:
        return value_for(rng, schema["allOf"][0], root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = rng.choice(kind)
    if kind == "object":
        return {key: value_for(rng, inner, root, depth + 1)
                for key, inner in schema.get("properties", {}).items()
                if key in schema.get("required", []) or rng.random() < 0.5}
    if kind == "array":
        first = schema.get("prefixItems", [])
        count = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 4))
        items = [first[i] if i < len(first) else schema.get("items", True) for i in range(count)]
        return [value_for(rng, item, root, depth + 1) for item in items]
    if kind == "null":
        return None
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -5))
        value = low + rng.choice([0, 1, 0.25, 2, 10])
        return int(value) if kind == "integer" else value
    return value_of(rng, 0)


def written(value, spaced):
    return json.dumps(value, ensure_ascii=False, separators=None if spaced else (",", ":"))


def may_be_left_out(value, text):
    """Texts that satisfy schemas and are no text of the grammar: docs/structured-output.md."""
    if "e+" in text or "e-" in text:
        return True
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return False
    if isinstance(value, (int, float)):
        return isinstance(value, float) and value == int(value)
    inner = value.values() if isinstance(value, dict) else value
    return any(may_be_left_out(v, "") for v in inner)


def has_formats(schema):
    return "\"format\"" in json.dumps(schema)


def is_narrowed(schema):
    """Whether the grammar leaves out members or items that the schema does not name."""
    text = json.dumps(schema)
    return "properties" in text or "prefixItems" in text


def main():
    probe = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    figures = {"schemas": 0, "refused": 0, "samples": 0, "valid": 0, "left out": 0, "invalid": 0}
    for number in range(count):
        schema = document_of(rng)
        validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
        values = [value_for(rng, schema, schema, 0) for _ in range(8)] + [value_of(rng, 2) for _ in range(3)]
        texts = [written(value, spaced=i % 2 == 0) for i, value in enumerate(values)]
        probe.stdin.write(json.dumps({"schema": schema, "texts": texts, "samples": 3, "seed": number}) + "\n")
        probe.stdin.flush()
        answer = json.loads(probe.stdout.readline())
        figures["schemas"] += 1
        if "error" in answer:
            figures["refused"] += 1
            known = ("no text matches", "refers to itself", "before it has read", "not supported", "too large",
                     "is supported", "more than", "too many")
            assert any(why in answer["error"] for why in known), (schema, answer)
            if "no text matches" not in answer["error"]:
                continue
            answer = {"admitted": [False] * len(texts), "samples": []}
        for text in answer["samples"]:
            if LONG_NUMBER.search(text):
                continue  # the validator's floats would round it
            figures["samples"] += 1
            problem = next(validator.iter_errors(json.loads(text)), None)
            assert problem is None, f"{text}\nis in the grammar of\n{json.dumps(schema)}\nbut {problem.message}"
        for value, text, admitted in zip(values, texts, answer["admitted"]):
            try:
                valid = validator.is_valid(value)
            except RecursionError:
                continue
            figures["valid" if valid else "invalid"] += 1
            assert valid or not admitted, f"{text}\nis admitted by\n{json.dumps(schema)}"
            if valid and not admitted:
                figures["left out"] += 1
                assert may_be_left_out(value, text) or is_narrowed(schema) or has_formats(schema), (
                    f"{text}\nis refused by\n{json.dumps(schema)}")
    probe.stdin.close()
    print(", ".join(f"{value} {name}" for name, value in figures.items()))
    # Otherwise nothing was tested.
    assert figures["samples"] > count and figures["valid"] > count and figures["invalid"] > count / 4
    assert figures["left out"] < 0.25 * figures["valid"]


if __name__ == "__main__":
    main()
