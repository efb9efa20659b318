"""What the benches share: running `pewter bench`, naming the device, keeping results as CSV."""
import csv
import json
import os
import platform
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "pewter")


def fail(message):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(1)


def pewter_bench(arguments):
    """The JSON object that `pewter bench ARGUMENTS` prints."""
    if not os.access(PROGRAM, os.X_OK):
        fail(f"{PROGRAM} is not built: ./dev build")
    done = subprocess.run([PROGRAM, "bench", *arguments, "--json"], stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        fail(f"pewter bench {' '.join(arguments)} ended with {done.returncode}")
    return json.loads(done.stdout)


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
