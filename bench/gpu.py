#!/usr/bin/env python3
"""Measures decoding of the 122B and 35B shapes on the GPU, with the rows and depths that serving has.

Prints a table and writes the figures to a CSV: bench/results/h200/speed.csv is one such.

    bench/gpu.py --results FILE [--program PATH] [--commit NAME] [--unique-layers N] [--repeat N]
"""
import argparse
import csv
import json
import os
import subprocess
import sys

from bench_tools import PROGRAM, commit

COLUMNS = ["commit", "processors", "bench", "shape", "format", "head", "unique_layers", "tokens",
           "depth", "rows", "sequences", "repeats", "tokens_per_second", "tokens_per_second_median",
           "distinct_experts", "bytes_per_token", "gb_per_second", "ceiling_gb_per_second",
           "share_of_ceiling"]
HEAD = ["--lm-head", "int8"]
CASES = [("122b", HEAD), ("122b", ["--lm-head", "bf16"]), ("35b", HEAD),
         *[("122b", [*HEAD, "--rows", rows]) for rows in ("2", "4", "8", "16")],
         ("122b", [*HEAD, "--sequences", "32"]), ("122b", [*HEAD, "--depth", "131072"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--results", required=True, help="CSV to write")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--commit", default="", help="commit of the program, where git is not at hand")
    parser.add_argument("--unique-layers", default="8", help="layers made; the model repeats them")
    parser.add_argument("--repeat", default="3")
    options = parser.parse_args()

    line = "  {:<44}{:>8}{:>14}{:>14}{:>9}"
    print(line.format("", "tok/s", "reached", "copy", "share"), flush=True)
    rows = []
    for shape, more in CASES:
        arguments = ["bench", "decode", "--device", "cuda", "--shape", "qwen3.5-" + shape, "--format",
                     "hybrid", "--unique-layers", options.unique_layers, "--repeat", options.repeat,
                     "--tokens", "48", *more, "--json"]
        done = subprocess.run([options.program, *arguments], stdout=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode != 0:
            print(f"gpu.py: pewter {' '.join(arguments)} ended with {done.returncode}", file=sys.stderr)
            return 1
        result = json.loads(done.stdout)
        print(line.format(shape + " " + " ".join(more), f"{result['tokens_per_second']:.1f}",
                          f"{result['gb_per_second']:.0f} GB/s",
                          f"{result['ceiling_gb_per_second']:.0f} GB/s",
                          f"{100 * result['share_of_ceiling']:.1f} %"), flush=True)
        rows.append({**result, "commit": options.commit or commit(), "repeats": options.repeat})
    os.makedirs(os.path.dirname(os.path.abspath(options.results)), exist_ok=True)
    with open(options.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
