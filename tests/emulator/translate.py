#!/usr/bin/env python3
"""Turns CUDA C++ into C++ for the emulator: `translate.py FROM TO FILE...` writes TO/FILE for each
FROM/FILE (a kernel file's name gets .cc behind it).

What a C++ compiler does not read is rewritten, line for line: asm statements become calls of a
function named like the instruction (ptx.h), shared variables become references into the block's shared
memory, <<< >>> becomes a call. Everything else stays as it is.
"""

import pathlib
import re
import sys


def closing(text, at):
    """The index of the bracket that closes the one at `at`."""
    depth, quoted = 0, False
    for i in range(at, len(text)):
        c = text[i]
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return i
    raise ValueError("a bracket is not closed")


def split_outside(text, separator):
    """Parts between separators that stand in no bracket and no string."""
    parts, depth, quoted, begin = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part.strip() for part in parts + [text[begin:]]]


def operands(text):
    """The expressions of one list of an asm statement."""
    parts = split_outside(text, ",") if text else []
    return [re.match(r'"[^"]*"\s*\((.*)\)$', part, re.S).group(1) for part in parts]


def asm_call(body):
    """The call for what stands between the brackets of an asm statement."""
    strings = re.match(r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', body)
    code = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings.group(1))).strip()
    if not code:
        return "static_cast<void>(0)"  # it only keeps the compiler from moving values
    lists = split_outside(body[strings.end() :], ":")[1:]  # outputs, inputs, what else changes
    values = [value for part in lists[:2] for value in operands(part)]
    # Of a block with registers of its own, the instruction that does something; a result in such a
    # register is the statement's first output.
    own_result = "selp" in code
    instructions = [part.strip() for part in code.strip("{} ").split(";")]
    instructions = [one for one in instructions if one and not re.match(r"\.reg|selp", one)]
    if len(instructions) != 1:
        raise ValueError(f"asm of {len(instructions)} instructions: {code}")
    mnemonic, _, rest = instructions[0].partition(" ")
    arguments = values[:1] if own_result else []
    for token in re.findall(r"%%?[\w.]+|[\w.]+", rest):
        if token.startswith("%%"):
            mnemonic += "_" + token[2:]
        elif token.startswith("%"):
            arguments.append(values[int(token[1:])])
        elif token[0].isdigit():
            arguments.append(token)
    return f"::emulator::ptx::{re.sub('[.:]+', '_', mnemonic)}({', '.join(arguments)})"


def rewrite_asm(text):
    out, at = [], 0
    for match in re.finditer(r"\basm\s*(?:volatile\s*)?\(", text):
        end = closing(text, match.end() - 1)
        lines = text[match.start() : end].count("\n")
        out += [text[at : match.start()], asm_call(text[match.end() : end]), "\n" * lines]
        at = end + 1
    return "".join(out) + text[at:]


def rewrite_shared(text):
    def dynamic(match):
        kind, name = match.group(1), match.group(2)
        return f"auto* const {name} = static_cast<{kind}*>(::emulator::dynamic_shared());"

    def static(match):
        align = match.group(1) or "16"
        declared = match.group(2).strip()
        kind, rest = re.match(r"((?:unsigned\s+)?[\w:]+(?:<[^;=]*?>)?)\s+(\w.*)$", declared, re.S).groups()
        made = []
        for variable in split_outside(rest, ","):
            name, extent = re.match(r"(\w+)\s*(\[.*\])?$", variable, re.S).groups()
            made.append(
                f"using {name}_type = {kind}{extent or ''}; static char {name}_key; "
                f"auto& {name} = *static_cast<{name}_type*>(::emulator::static_shared("
                f"&{name}_key, sizeof({name}_type), {align}));"
            )
        return " ".join(made)

    text = re.sub(
        r"extern __shared__ (?:__align__\(\d+\)\s*)?((?:unsigned )?\w+) (\w+)\[\];", dynamic, text
    )
    return re.sub(r"__shared__ (?:__align__\((\d+)\)\s*)?([^;]*);", static, text)


def rewrite_launches(text):
    def launch(match):
        kernel, configuration = match.group(1), split_outside(match.group(2), ",")
        end = closing(text, match.end() - 1)
        arguments = text[match.end() : end]
        blocks, threads, shared, stream = configuration
        return end, (
            f"::emulator::enqueue({stream}, {{.blocks = {blocks}, .threads = {threads}, "
            f".shared_bytes = {shared}}}, {kernel}, {arguments})"
        )

    out, at = [], 0
    for match in re.finditer(r"(\w+)<<<(.*?)>>>\(", text, re.S):
        end, call = launch(match)
        out += [text[at : match.start()], call]
        at = end + 1
    return "".join(out) + text[at:]


def main():
    source, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name in sys.argv[3:]:
        text = (source / name).read_text()
        try:
            text = rewrite_launches(rewrite_shared(rewrite_asm(text)))
        except (ValueError, AttributeError) as error:
            sys.exit(f"{source / name}: {error}")
        to = target / (name + ".cc" if name.endswith(".cu") else name)
        to.parent.mkdir(parents=True, exist_ok=True)
        built_in = "#include <cuda_runtime.h>\n" if name.endswith(".cu") else ""
        text = f'{built_in}#line 1 "{source / name}"\n{text}'
        if not to.exists() or to.read_text() != text:
            to.write_text(text)


if __name__ == "__main__":
    main()
