#!/usr/bin/env python3
"""Measures drafting of the 122B shape on the GPU: what each drafter takes beside what it must read, what
rolling back costs, and what a chosen acceptance comes to, with uniform and overlapped routing.

Prints a table and writes the figures to a CSV: bench/results/h200/drafting.csv is one such.

    bench/draft_gpu.py --results FILE [--program PATH] [--commit NAME] [--unique-layers N] [--repeat N]
                       [--shape NAME] [--device NAME] [--tokens N]
"""
import argparse
import csv
import json
import os
import subprocess
import sys

from bench_tools import PROGRAM, commit

COLUMNS = ["commit", "processors", "shape", "format", "head", "unique_layers", "tokens", "depth", "rows",
           "forced_tokens_per_step", "routing", "distinct_experts", "speculate", "draft_format",
           "draft_head_rows", "repeats", "tokens_per_second", "tokens_per_second_median",
           "share_of_ceiling", "ceiling_gb_per_second", "draft_us", "draft_bytes",
           "draft_share_of_ceiling", "draft_share_of_step", "step_us_after_part", "step_us_after_all",
           "rollback_share_of_step"]
SIX = ["--rows", "8", "--forced-tokens-per-step", "6"]
MTP = ["--speculate", "mtp"]
SHORT = ["--draft-format", "int4", "--draft-head-rows", "32768"]
DFLASH = ["--speculate", "dflash"]
CASES = [
    [],  # plain
    # What three guesses of the MTP layer take.
    ["--draft-tokens", "3", *MTP, *SHORT],
    ["--draft-tokens", "3", *MTP, "--draft-format", "fp8", "--draft-head-rows", "32768"],
    ["--draft-tokens", "3", *MTP, "--draft-format", "int4"],
    ["--draft-tokens", "3", *MTP],
    ["--draft-tokens", "1", *MTP, *SHORT],
    # Blocks of the known DFlash drafter.
    ["--draft-tokens", "7", *DFLASH],
    ["--draft-tokens", "7", *DFLASH, *SHORT],
    ["--draft-tokens", "7", *DFLASH, "--draft-format", "fp8", "--draft-head-rows", "32768"],
    ["--draft-tokens", "15", *DFLASH],
    ["--draft-tokens", "7", "--speculate", "suffix"],
    # Six tokens a step of eight rows: without a drafter, and with each.
    *[[*SIX, "--routing", routing, *drafter]
      for routing in ("uniform", "overlapped")
      for drafter in ([], [*MTP, *SHORT], [*DFLASH, *SHORT])],
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--results", required=True, help="CSV to write")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--commit", default="", help="commit of the program, where git is not at hand")
    parser.add_argument("--shape", default="qwen3.5-122b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--unique-layers", default="4", help="layers made; the model repeats them")
    parser.add_argument("--repeat", default="3")
    parser.add_argument("--tokens", default="48", help="steps of a repeat")
    options = parser.parse_args()

    line = "  {:<82}{:>9}{:>7}{:>9}{:>8}{:>8}{:>9}"
    print(line.format("", "tok/s", "x", "draft us", "x copy", "of step", "rollback"), flush=True)
    rows = []
    for case in CASES:
        arguments = ["bench", "decode", "--device", options.device, "--shape", options.shape, "--format",
                     "hybrid", "--lm-head", "int8", "--unique-layers", options.unique_layers,
                     "--repeat", options.repeat, "--tokens", options.tokens, *case, "--json"]
        done = subprocess.run([options.program, *arguments], stdout=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode != 0:
            print(f"draft_gpu.py: pewter {' '.join(arguments)} ended with {done.returncode}",
                  file=sys.stderr)
            continue
        result = json.loads(done.stdout)
        rows.append({**result, "commit": options.commit or commit(), "repeats": options.repeat})
        share = result.get("draft_share_of_ceiling", 0)
        drafts = "draft_us" in result
        print(line.format(" ".join(case) or "plain", f"{result['tokens_per_second']:.1f}",
                          f"{result['tokens_per_second'] / rows[0]['tokens_per_second']:.2f}",
                          f"{result['draft_us']:.0f}" if drafts else "",
                          f"{1 / share:.2f}" if share else "",
                          f"{100 * result['draft_share_of_step']:.1f} %" if drafts else "",
                          f"{100 * result['rollback_share_of_step']:.2f} %"
                          if "rollback_share_of_step" in result else ""), flush=True)
    os.makedirs(os.path.dirname(os.path.abspath(options.results)), exist_ok=True)
    with open(options.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
