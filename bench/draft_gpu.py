#!/usr/bin/env python3
"""Measures drafting of the 122B shape on the GPU: what each drafter takes beside what it must read, what
rolling back costs, and what a chosen acceptance comes to, with uniform and overlapped routing.

Prints a table and writes the figures to a CSV: bench/results/h200/drafting.csv is one such.

    bench/draft_gpu.py --results FILE [--program PATH] [--commit NAME] [--unique-layers N] [--repeat N]
                       [--shape NAME] [--device NAME] [--tokens N]
"""
import json

from bench_tools import commit, gpu_arguments, percent, try_bench, write_rows

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
    parser = gpu_arguments(__doc__, unique_layers="4", repeat="3")
    parser.add_argument("--shape", default="qwen3.5-122b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", default="48", help="steps of a repeat")
    options = parser.parse_args()

    line = "  {:<82}{:>9}{:>7}{:>9}{:>8}{:>8}{:>9}"
    print(line.format("", "tok/s", "x", "draft us", "x copy", "of step", "rollback"), flush=True)
    rows = []
    for case in CASES:
        output = try_bench(["decode", "--device", options.device, "--shape", options.shape, "--format",
                            "hybrid", "--lm-head", "int8", "--unique-layers", options.unique_layers,
                            "--repeat", options.repeat, "--tokens", options.tokens, *case, "--json"],
                           options.program)
        if output is None:
            continue
        result = json.loads(output)
        rows.append({**result, "commit": options.commit or commit(), "repeats": options.repeat})
        share = result.get("draft_share_of_ceiling", 0)
        drafts = "draft_us" in result
        print(line.format(" ".join(case) or "plain", f"{result['tokens_per_second']:.1f}",
                          f"{result['tokens_per_second'] / rows[0]['tokens_per_second']:.2f}",
                          f"{result['draft_us']:.0f}" if drafts else "",
                          f"{1 / share:.2f}" if share else "",
                          percent(result["draft_share_of_step"]) if drafts else "",
                          percent(result["rollback_share_of_step"], 2)
                          if "rollback_share_of_step" in result else ""), flush=True)
    write_rows(options.results, COLUMNS, rows)


if __name__ == "__main__":
    main()
