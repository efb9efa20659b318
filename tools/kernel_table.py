#!/usr/bin/env python3
"""Writes docs/kernels.md: registers, spills and shared memory of every CUDA kernel.

usage: tools/kernel_table.py [BUILD_FOLDER]      (build-cuda, configured with the preset cuda)

Compiles each .cu file anew, for each architecture, with the assembler's report on; needs nvcc and no GPU.
Fails, after writing, when a kernel that runs in a step spills registers or has more static shared memory than
every GPU has.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHITECTURES = ("sm_90", "sm_121")
# Run when weights are loaded or ceilings measured, not in a step.
COLD = ("pack_values_kernel", "pack_tails_kernel", "peak_kernel")
MOST_SHARED = 99 * 1024
HEAD = """# Kernels

What the compiler made of each kernel: registers a thread, bytes spilled from them (stores + loads) and static shared
memory a block. Dynamic shared memory comes on top where a launcher asks for it; the two together are held to
99 KiB at every launch (`src/backend/cuda/common/kernel.cu`). Written by `tools/kernel_table.py`, which fails when a
kernel of a step spills.

"""


def report(entry, architecture):
    """The assembler's words about the file of one entry of compile_commands.json."""
    words, skip = [], False
    for word in shlex.split(entry["command"]):
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-x"):
            skip = True
        elif word not in ("-c", "-MD", entry["file"]) and not word.startswith("--generate-code"):
            words.append(word)
    if os.path.basename(words[0]) == "ccache":
        words = words[1:]
    words += ["-cubin", f"-arch={architecture}", "-Xptxas", "-v", "-o", os.devnull, entry["file"]]
    run = subprocess.run(words, capture_output=True, text=True, cwd=entry["directory"], check=False)
    if run.returncode != 0:
        sys.exit(f"{entry['file']}: {run.stderr}")
    return run.stderr


def kernels(text):
    """(mangled name, registers, spilled bytes, shared bytes) of each kernel in a report."""
    for entry in re.split(r"Compiling entry function '", text)[1:]:
        name = entry.split("'", 1)[0]
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", entry)
        used = re.search(r"Used (\d+) registers", entry)
        shared = re.search(r"(\d+) bytes smem", entry)
        yield name, int(used[1]), int(spills[1]) + int(spills[2]), int(shared[1]) if shared else 0


def plain_name(mangled):
    name = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    name = re.sub(r"pewter::cuda::|\(anonymous namespace\)::|_NV_ANON_NAMESPACE::", "", name)
    name = re.sub(r"^void ", "", name.strip())
    depth, end = 0, len(name)  # without the parameters: the first parenthesis outside of <>
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            end = i
            break
    return re.sub(r"\((?:int|bool|unsigned int)\)", "", name[:end])


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-cuda")
    build = build if build.is_absolute() else ROOT / build
    entries = [
        entry
        for entry in json.loads((build / "compile_commands.json").read_text())
        if entry["file"].endswith(".cu") and not entry["file"].endswith("_test.cu")
    ]
    jobs = [(entry, arch) for entry in entries for arch in ARCHITECTURES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(lambda job: report(*job), jobs))
    rows, wrong = {}, []
    for (entry, arch), text in zip(jobs, reports):
        file = os.path.relpath(entry["file"], ROOT / "src/backend/cuda")
        for mangled, registers, spilled, shared in kernels(text):
            name = plain_name(mangled)
            rows.setdefault((file, name), {})[arch] = (registers, spilled, shared)
            if spilled > 0 and not name.startswith(COLD):
                wrong.append(f"{name} spills {spilled} bytes on {arch}")
            if shared > MOST_SHARED:
                wrong.append(f"{name} has {shared} bytes of static shared memory on {arch}")
    lines = [HEAD]
    titles = [f"{arch} {what}" for arch in ARCHITECTURES for what in ("registers", "spilled", "shared")]
    for file in sorted({file for file, _ in rows}):
        lines.append(f"`src/backend/cuda/{file}`\n\n| kernel | {' | '.join(titles)} |\n")
        lines.append(f"|---{'|---:' * len(titles)}|\n")
        for (of, name), figures in sorted(rows.items()):
            if of == file:
                cells = [str(x) for arch in ARCHITECTURES for x in figures.get(arch, ("–",) * 3)]
                lines.append(f"| `{name}` | {' | '.join(cells)} |\n")
        lines.append("\n")
    (ROOT / "docs/kernels.md").write_text("".join(lines).rstrip("\n") + "\n")
    print(f"docs/kernels.md: {len(rows)} kernels")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
