#!/usr/bin/env python3
"""Measures the shape `third` on the CPU: decode and prefill in INT4 and BF16, and decode at depth.

Prints a table and appends the figures to bench/results/<device>/speed.csv.

    bench/speed.py [--threads N] [--repeat N] [--shape NAME] [--no-record]
"""
import argparse

from bench_tools import append_rows, commit, cpu_name, percent, pewter_bench

COLUMNS = ["commit", "cpu", "bench", "shape", "format", "head", "unique_layers", "threads", "tokens",
           "depth", "rows", "sequences", "repeats", "tokens_per_second", "tokens_per_second_median",
           "bytes_per_token", "gb_per_second", "ceiling_gb_per_second", "flops_per_token",
           "flops_per_second", "ceiling_flops_per_second", "ceiling_instruction", "share_of_ceiling"]
CASES = [("decode", "int4", []), ("decode", "bf16", []), ("prefill", "int4", []),
         ("prefill", "bf16", []), ("decode", "int4", ["--depth", "4096"]),
         ("decode", "bf16", ["--depth", "4096"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--shape", default="third")
    parser.add_argument("--no-record", action="store_true", help="print only")
    options = parser.parse_args()

    common = ["--shape", options.shape, "--repeat", str(options.repeat), "--device", "cpu",
              "--lm-head", "bf16"]  # as published checkpoints have it
    if options.threads:
        common += ["--threads", str(options.threads)]
    line = "  {:<20}{:>8}{:>9}{:>16}{:>16}{:>9}{:>12}"
    print(line.format("", "tok/s", "median", "reached", "ceiling", "share", "of depth 0"), flush=True)
    rows = []
    shallow = {}
    for bench, weights, more in CASES:
        result = pewter_bench([bench, "--format", weights, *common, *more])
        rate = result["tokens_per_second"]
        if bench == "decode":
            reached, ceiling, unit = result["gb_per_second"], result["ceiling_gb_per_second"], "GB/s"
        else:
            reached, ceiling = result["flops_per_second"] / 1e9, result["ceiling_flops_per_second"] / 1e9
            unit = "GFLOP/s"
        depth = result["depth"]
        if bench == "decode" and depth == 0:
            shallow[weights] = rate
        against = percent(rate / shallow[weights]) if depth else ""
        print(line.format(f"{bench} {weights}" + (f" at {depth}" if depth else ""), f"{rate:.1f}",
                          f"{result['tokens_per_second_median']:.1f}", f"{reached:.1f} {unit}",
                          f"{ceiling:.1f} {unit}", percent(result["share_of_ceiling"]),
                          against).rstrip(), flush=True)
        rows.append({**result, "commit": commit(), "cpu": cpu_name(), "repeats": options.repeat})
    if not options.no_record:
        print("kept in", append_rows("speed", COLUMNS, rows))


if __name__ == "__main__":
    main()
