#!/usr/bin/env python3
"""Decode speed while another process spins on one of the cores, as a share of the speed alone.

Runs take turns, alone and beside the spinning process; the best of each counts.

    bench/stolen_core.py [--threads N] [--rounds N] [--format NAME] [--no-record]
"""
import argparse
import os
import subprocess
import sys

from bench_tools import append_rows, commit, cpu_name, percent, pewter_bench

COLUMNS = ["commit", "cpu", "shape", "format", "threads", "rounds", "alone", "beside", "ratio"]


class Spinner:
    """A process that does nothing, as fast as it can, on the last core this one may use."""

    def __enter__(self):
        core = max(os.sched_getaffinity(0))
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", default="int4")
    parser.add_argument("--no-record", action="store_true", help="print only")
    options = parser.parse_args()

    arguments = ["decode", "--shape", "third", "--format", options.format, "--device", "cpu"]
    if options.threads:
        arguments += ["--threads", str(options.threads)]
    alone, beside = [], []
    for _ in range(options.rounds):
        result = pewter_bench(arguments)
        alone.append(result["tokens_per_second"])
        with Spinner():
            beside.append(pewter_bench(arguments)["tokens_per_second"])
        print(f"alone {alone[-1]:.1f} tok/s, beside a spinning process {beside[-1]:.1f}", flush=True)
    ratio = max(beside) / max(alone)
    print(f"best: {max(alone):.1f} and {max(beside):.1f} tok/s: {percent(ratio)}")
    if not options.no_record:
        row = {"commit": commit(), "cpu": cpu_name(), "shape": "third", "format": options.format,
               "threads": result["threads"], "rounds": options.rounds, "alone": max(alone),
               "beside": max(beside), "ratio": ratio}
        print("kept in", append_rows("stolen_core", COLUMNS, [row]))


if __name__ == "__main__":
    main()
