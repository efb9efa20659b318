#!/usr/bin/env python3
"""Pewter beside llama.cpp on this CPU, run in turn: the shape `third`, INT4 against Q4_0 and BF16.

    python3 -m venv build/peer && build/peer/bin/pip install llama-cpp-python numpy
    build/peer/bin/python bench/peer.py [--threads N] [--rounds N] [--formats int4,bf16] [--depth N]

The second command compiles llama.cpp, which takes a while. Where the CPU names AMX and the hypervisor does
not allow it, the peer dies of an illegal instruction; compile it without, for pip's sake in one line:

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
                -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"

The peer's model is written by
gen_qwen35moe_gguf.py of the reference material (PEWTER_SHARED). Both sides get random prompts, one
warm-up, and make logits and choose a token at every step; the head is INT4 on our side too when the
peer's is Q4_0. The best of all repeats of all rounds counts. Results are appended to
bench/results/<device>/peer.csv.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

from bench_tools import ROOT, append_rows, commit, cpu_name, fail, pewter_bench, print_table

COLUMNS = ["commit", "cpu", "peer", "bench", "format", "peer_format", "threads", "tokens", "depth",
           "rounds", "repeats", "ours", "theirs", "ratio"]
PEER_TYPES = {"int4": "q4_0", "bf16": "bf16"}


# ---- The peer's side, in a process of its own for every run.

def peer_process(settings):
    """Runs in the child: prints tokens a second of each repeat as JSON."""
    import llama_cpp  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(settings["model"].encode(),
                                                 llama_cpp.llama_model_default_params())
    if not model:
        sys.exit("llama.cpp could not load " + settings["model"])
    decodes, tokens, depth = settings["bench"] == "decode", settings["tokens"], settings["depth"]
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = depth + tokens + 64
    parameters.n_batch = 2048
    parameters.n_ubatch = 512
    parameters.n_threads = parameters.n_threads_batch = settings["threads"]
    context = llama_cpp.llama_init_from_model(model, parameters)
    if not context:
        sys.exit("llama.cpp could not make a context")
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    draw = random.Random(7)

    def feed(count):
        ids = [draw.randrange(vocabulary) for _ in range(count)]
        for begin in range(0, count, 2048):
            part = ids[begin:begin + 2048]
            array = (llama_cpp.llama_token * len(part))(*part)
            if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(part))) != 0:
                sys.exit("llama_decode failed")
        llama_cpp.llama_synchronize(context)

    rates = []
    for _ in range(settings["repeats"] + 1):  # the first warms up
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        if depth:
            feed(depth)
        start = time.perf_counter()
        if decodes:
            for _ in range(tokens):
                feed(1)
                logits = llama_cpp.llama_get_logits_ith(context, -1)
                numpy.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax()
        else:
            feed(tokens)
        rates.append(tokens / (time.perf_counter() - start))
    print(json.dumps(rates[1:]))


def run_peer(settings):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--peer", json.dumps(settings)],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail(f"the peer ended with {done.returncode}" +
             (", an illegal instruction; see the head of this file" if done.returncode == -4 else ""))
    return max(json.loads(done.stdout.strip().split("\n")[-1]))


# ---- The comparison.

def peer_model(kind):
    """Path of the peer's model file, written when it is not there."""
    shared = os.environ.get("PEWTER_SHARED", os.path.join(os.path.dirname(ROOT), "shared"))
    generator = os.path.join(shared, "peers", "gen_qwen35moe_gguf.py")
    folder = os.path.join(ROOT, "build", "peer-models")
    path = os.path.join(folder, f"third-{kind}.gguf")
    if os.path.exists(path):
        return path
    if not os.path.exists(generator):
        fail(f"no {generator}: set PEWTER_SHARED to the reference material")
    os.makedirs(folder, exist_ok=True)
    subprocess.run([sys.executable, generator, "--preset", "third", "--type", kind, "--out",
                    path + ".part"], check=True, stdout=subprocess.DEVNULL)
    os.rename(path + ".part", path)
    return path


def compare(bench, weights, options, version):
    tokens = 64 if bench == "decode" else 512
    ours, theirs = [], []
    arguments = [bench, "--shape", "third", "--format", weights, "--device", "cpu",
                 "--threads", str(options.threads), "--tokens", str(tokens),
                 "--repeat", str(options.repeat), "--depth", str(options.depth)]
    arguments += ["--lm-head", weights]  # as the peer's file has it
    settings = {"bench": bench, "model": peer_model(PEER_TYPES[weights]), "tokens": tokens,
                "depth": options.depth, "threads": options.threads, "repeats": options.repeat}
    for _ in range(options.rounds):
        ours.append(pewter_bench(arguments)["tokens_per_second"])
        theirs.append(run_peer(settings))
    return {"commit": commit(), "cpu": cpu_name(), "peer": version, "bench": bench, "format": weights,
            "peer_format": PEER_TYPES[weights], "threads": options.threads, "tokens": tokens,
            "depth": options.depth, "rounds": options.rounds, "repeats": options.repeat,
            "ours": max(ours), "theirs": max(theirs), "ratio": max(ours) / max(theirs)}


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer_process(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--formats", default="int4,bf16")
    parser.add_argument("--benches", default="decode,prefill")
    parser.add_argument("--no-record", action="store_true", help="print only")
    options = parser.parse_args()
    try:
        import llama_cpp  # pylint: disable=import-outside-toplevel
    except ImportError:
        fail("llama-cpp-python is not installed for this Python; see the head of this file")
    version = "llama-cpp-python " + llama_cpp.__version__
    table = [("", "Pewter", "llama.cpp", "ratio")]
    rows = []
    for bench in options.benches.split(","):
        for weights in options.formats.split(","):
            if bench not in ("decode", "prefill") or weights not in PEER_TYPES:
                fail(f"no such comparison: {bench} {weights}")
            row = compare(bench, weights, options, version)
            rows.append(row)
            table.append((f"{bench} {weights}", f"{row['ours']:.1f} tok/s",
                          f"{row['theirs']:.1f} tok/s", f"{row['ratio']:.2f}"))
    print_table(table)
    if not options.no_record:
        print("kept in", append_rows("peer", COLUMNS, rows))
    return None


if __name__ == "__main__":
    main()
