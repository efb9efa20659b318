"""llama-benchy against `pewter serve` with the demo model, and its figures beside those of the server's
own log: exit code 1 when any of them differ by more than five percent.

usage: python3 bench/benchy.py [RUNS]       (5; needs the package llama-benchy: pip install llama-benchy==0.4.0)
"""

import functools
import gzip
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "server"))
from program import MODEL, Server  # noqa: E402
from bench_tools import percent  # noqa: E402

PROMPT, ANSWER = 1024, 256  # tokens
MOST_APART = 0.05


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve_book(folder):
    """The texts the demo model was trained on, at a URL: benchy cuts its prompts from a book."""
    with gzip.open(ROOT / "tools/demo_model/glosses.tsv.gz", "rt") as glosses:
        text = "\n".join(line.split("\t", 1)[-1].strip() for line in glosses)
    pathlib.Path(folder, "book.txt").write_text(text)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/book.txt"


def run_benchy(server, book, folder, runs):
    result = pathlib.Path(folder, "result.json")
    subprocess.run(
        [pathlib.Path(sys.executable).with_name("llama-benchy"), "--base-url", server.url("/v1"), "--model", "m",
         "--tokenizer", MODEL, "--book-url", book, "--pp", str(PROMPT), "--tg", str(ANSWER), "--exact-tg",
         "--runs", str(runs), "--skip-coherence", "--save-result", result, "--format", "json"],
        check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    return json.loads(result.read_text())["benchmarks"][0]


def logged(server, runs):
    """Prompt and decode rates of the last requests, as the server saw them."""
    line = r'completions" 200, ([\d.]+) s, (\d+)\+(\d+) tokens, queued [\d.]+ s, first token ([\d.]+) s'
    rows = [[float(x) for x in row] for row in re.findall(line, server.log()) if int(row[2]) == ANSWER]
    return [(prompt / first, (answer - 1) / (total - first)) for total, prompt, answer, first in rows[-runs:]]


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder, Server(
            str(ROOT / "build/pewter"), "--default-chat-template-kwargs", '{"enable_thinking": false}') as server:
        theirs = run_benchy(server, serve_book(folder), folder, runs)
        ours = logged(server, runs)
    worst = 0
    print("run   prompt: benchy    ours   decode: benchy    ours   tokens/s")
    values = zip(theirs["pp_throughput"]["values"], theirs["tg_throughput"]["values"], ours)
    for run, (prompt, decode, (our_prompt, our_decode)) in enumerate(values, 1):
        worst = max(worst, abs(prompt / our_prompt - 1), abs(decode / our_decode - 1))
        print(f"{run:3} {prompt:16.0f} {our_prompt:7.0f} {decode:16.1f} {our_decode:7.1f}")
    print(f"at most {percent(worst)} apart")
    sys.exit(worst > MOST_APART)


if __name__ == "__main__":
    main()
