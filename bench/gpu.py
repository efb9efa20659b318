#!/usr/bin/env python3
"""Measures decoding of the 122B and 35B shapes on the GPU, with the rows and depths that serving has.

Prints a table and writes the figures to a CSV: bench/results/h200/speed.csv is one such.

    bench/gpu.py --results FILE [--program PATH] [--commit NAME] [--unique-layers N] [--repeat N]
"""
from bench_tools import commit, gpu_arguments, percent, pewter_bench, write_rows

COLUMNS = ["commit", "processors", "bench", "shape", "format", "head", "unique_layers", "tokens",
           "depth", "rows", "sequences", "repeats", "tokens_per_second", "tokens_per_second_median",
           "distinct_experts", "bytes_per_token", "gb_per_second", "ceiling_gb_per_second",
           "share_of_ceiling"]
HEAD = ["--lm-head", "int8"]
CASES = [("122b", HEAD), ("122b", ["--lm-head", "bf16"]), ("35b", HEAD),
         *[("122b", [*HEAD, "--rows", rows]) for rows in ("2", "4", "8", "16")],
         ("122b", [*HEAD, "--sequences", "32"]), ("122b", [*HEAD, "--depth", "131072"])]


def main():
    options = gpu_arguments(__doc__, unique_layers="8", repeat="3").parse_args()

    line = "  {:<44}{:>8}{:>14}{:>14}{:>9}"
    print(line.format("", "tok/s", "reached", "copy", "share"), flush=True)
    rows = []
    for shape, more in CASES:
        result = pewter_bench(["decode", "--device", "cuda", "--shape", "qwen3.5-" + shape, "--format",
                               "hybrid", "--unique-layers", options.unique_layers, "--repeat",
                               options.repeat, "--tokens", "48", *more], options.program)
        print(line.format(shape + " " + " ".join(more), f"{result['tokens_per_second']:.1f}",
                          f"{result['gb_per_second']:.0f} GB/s",
                          f"{result['ceiling_gb_per_second']:.0f} GB/s",
                          percent(result["share_of_ceiling"])), flush=True)
        rows.append({**result, "commit": options.commit or commit(), "repeats": options.repeat})
    write_rows(options.results, COLUMNS, rows)


if __name__ == "__main__":
    main()
