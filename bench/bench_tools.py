"""What the benches share: running `pewter bench`, naming the device, keeping results as CSV."""
import argparse
import csv
import json
import os
import platform
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "pewter")


def complain(message):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)


def fail(message):
    complain(message)
    sys.exit(1)


def try_bench(arguments, program=PROGRAM):
    """What `pewter bench ARGUMENTS` prints, or None, said why, when it fails."""
    if not os.access(program, os.X_OK):
        fail(f"{program} is not built: ./dev build")
    done = subprocess.run([program, "bench", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    complain(f"pewter bench {' '.join(arguments)} ended with {done.returncode}")
    return None


def bench_output(arguments, program=PROGRAM):
    """The same, but that this program ends, too."""
    output = try_bench(arguments, program)
    return sys.exit(1) if output is None else output


def pewter_bench(arguments, program=PROGRAM):
    """The JSON object that `pewter bench ARGUMENTS` prints; ends this program when it fails."""
    return json.loads(bench_output([*arguments, "--json"], program))


def percent(share, digits=1):
    return f"{100 * share:.{digits}f} %"


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def device_folder():
    """bench/results/<device>, named after the CPU."""
    name = re.sub(r"\(r\)|\(tm\)|processor|cpu", " ", cpu_name().lower())
    name = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "cpu"
    return os.path.join(ROOT, "bench", "results", f"{name}-{os.cpu_count()}")


def commit():
    """The commit that was built, marked when the tree differs from it."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        return done.stdout.strip()
    dirty = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if dirty else "")


def gpu_arguments(doc, **defaults):
    """A parser of what the benches of a GPU are told: where the program is a copy on the GPU's machine,
    git is not at hand. Defaults: those of --unique-layers and --repeat."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("--results", required=True, help="CSV to write")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--commit", default="", help="commit of the program, where git is not at hand")
    parser.add_argument("--unique-layers", help="layers made; the model repeats them")
    parser.add_argument("--repeat")
    parser.set_defaults(**defaults)
    return parser


def write_rows(path, columns, rows):
    """Writes a CSV of dictionaries' values in these columns."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def append_rows(name, columns, rows):
    """Appends dictionaries to bench/results/<device>/<name>.csv; returns its path."""
    folder = device_folder()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name + ".csv")
    new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow({column: row.get(column, "") for column in columns})
    return path


def print_table(rows):
    """Rows of text in columns; the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  " + "  ".join(cells).rstrip())
