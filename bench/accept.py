#!/usr/bin/env python3
"""Measures every way of drafting on the demo's 60 prompts, family by family.

Appends to bench/results/<device>/accept.csv and draws bench/results/<device>/accept.svg, tokens a step.

    bench/accept.py [--model DIR] [--draft-model DIR] [--methods LIST] [--threads N] [--repeat N]
                    [--temperature T] [--no-record]
"""
import argparse
import csv
import io
import os

from bench_tools import ROOT, append_rows, bench_output, commit, cpu_name, device_folder, print_table

PROMPTS = os.path.join(ROOT, "tests", "golden", "data", "demo", "answers.json")
PLAIN_METHODS = "plain,suffix,mtp:1,mtp:3,mtp,auto"
COLUMNS = ["commit", "cpu", "threads", "repeats", "temperature", "family", "method", "prompts", "tokens",
           "steps", "drafts", "draft_tokens", "accepted_tokens", "tokens_per_step", "tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "demo"))
    parser.add_argument("--draft-model", default="", help="a DFlash drafter: dflash is measured too")
    parser.add_argument("--methods", default="")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--repeat", default="4")
    parser.add_argument("--temperature", default="0")
    parser.add_argument("--no-record", action="store_true", help="only print")
    options = parser.parse_args()

    dflash = ",dflash:4,dflash" if options.draft_model else ""
    arguments = ["accept", options.model, "--prompts", PROMPTS, "--threads", options.threads,
                 "--repeat", options.repeat, "--temperature", options.temperature, "--csv",
                 "--methods", options.methods or PLAIN_METHODS + dflash]
    if options.draft_model:
        arguments += ["--draft-model", options.draft_model]
    if not options.no_record:
        os.makedirs(device_folder(), exist_ok=True)
        arguments += ["--svg", os.path.join(device_folder(), "accept.svg")]
    rows = list(csv.DictReader(io.StringIO(bench_output(arguments))))
    for row in rows:
        row.update(commit=commit(), cpu=cpu_name(), threads=options.threads, repeats=options.repeat)
    print_table([["family", "method", "tok/s", "tokens a step"],
                 *[[row["family"], row["method"], row["tokens_per_second"], row["tokens_per_step"]]
                   for row in rows]])
    if not options.no_record:
        print(append_rows("accept", COLUMNS, rows))


if __name__ == "__main__":
    main()
