"""Runs recorded request cases (a list of steps: a request and what is expected) against a server.

Understands the steps of level "http": JSON pointers with matchers, and facts about event streams.
"""

import base64
import json
import re


class Unknown(Exception):
    """A step that this runner does not understand, or a part of the API the server does not have."""


def expand(value):
    if isinstance(value, dict):
        if set(value) == {"$repeat"}:
            text, count = value["$repeat"]
            return text * count
        return {key: expand(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item) for item in value]
    return value


def at_pointer(document, pointer: str):
    for part in pointer.split("/")[1:]:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


TYPES = {"string": str, "number": (int, float), "object": dict, "array": list}


def check_matchers(document, matchers: dict, where: str) -> None:
    for pointer, wants in matchers.items():
        value = at_pointer(document, pointer)
        for matcher, want in wants.items():
            good = {
                "equals": lambda: value == want,
                "type": lambda: isinstance(value, TYPES[want]),
                "contains": lambda: want in value,
                "regex": lambda: re.search(want, value) is not None,
                "gte": lambda: value >= want,
                "lte": lambda: value <= want,
                "one_of": lambda: value in want,
            }[matcher]()
            assert good, f"{where}: {pointer} is {value!r}, want {matcher} {want!r}"


def check_stream(text: str, wants: dict, where: str) -> None:
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    chunks = [json.loads(line) for line in lines[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    tokens = (chunks[-1].get("usage") or {}).get("completion_tokens")
    texts = [c for c in choices if c.get("text") or c.get("delta", {}).get("content")]
    for fact, want in wants.items():
        if fact == "every_data_line_is_json_except_last":
            continue  # done above
        elif fact == "last_data":
            assert lines[-1] == want, f"{where}: the last line is {lines[-1]!r}"
        elif fact == "first_chunk_delta_role":
            assert choices[0]["delta"]["role"] == want, where
        elif fact == "one_chunk_has_finish_reason":
            assert len(reasons) == 1, f"{where}: {reasons}"
        elif fact == "last_json_chunk":
            check_matchers(chunks[-1], want, where)
        elif fact == "other_chunks_have_no_usage_key":
            assert all("usage" not in chunk for chunk in chunks[:-1]), where
        elif fact == "usage_completion_tokens":
            check_matchers({"n": tokens}, {"/n": want}, where)
        elif fact == "text_chunks_per_completion_token":
            check_matchers({"n": len(texts) / tokens}, {"/n": want}, where)
        elif fact == "finish_reason":
            check_matchers({"n": reasons[-1]}, {"/n": want}, where)
        else:
            raise Unknown(fact)


def run_step(server, step: dict, where: str) -> None:
    if "request" not in step:
        raise Unknown("a step that is no request")
    request, expect = step["request"], step.get("expect", {})
    body = None
    if "json" in request:
        body = json.dumps(expand(request["json"])).encode()
    elif "body_base64" in request:
        body = base64.b64decode(request["body_base64"])
    elif "body_text" in request:
        body = request["body_text"].encode()
    status, headers, data = server.request(request["method"], request["path"], body,
                                           request.get("headers"))
    text = data.decode("utf-8")  # valid, whatever the request was
    where = f"{where} {request['method']} {request['path']}"
    assert status == expect.get("status", status), f"{where}: status {status}: {text[:300]}"
    if "content_type" in expect:
        assert headers["Content-Type"].startswith(expect["content_type"]), where
    if "json" in expect:
        check_matchers(json.loads(text), expect["json"], where)
    if "sse" in expect:
        check_stream(text, expect["sse"], where)
    for key in set(expect) - {"status", "content_type", "json", "sse", "body_is_valid_utf8"}:
        raise Unknown(key)
