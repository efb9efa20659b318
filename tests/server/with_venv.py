"""Runs a Python program in a virtual environment with pinned packages from PyPI.

usage: with_venv.py FOLDER REQUIREMENTS PROGRAM [ARGUMENTS]

The environment is made once and again whenever the requirements change; who comes meanwhile waits. Without venv or PyPI there is
nothing to test with: exit code 77, which ctest counts as skipped.
"""

import fcntl
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77


def skip(reason: str) -> None:
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def make(folder: pathlib.Path, requirements: pathlib.Path) -> pathlib.Path:
    wanted = requirements.read_text()
    python = folder / "bin" / "python3"
    mark = folder / "requirements.txt"
    if mark.is_file() and mark.read_text() == wanted and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode != 0:
        skip(f"no virtual environment can be made (Debian: python3-venv): {made.stdout.strip()[-300:]}")
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
         "--timeout", "15", "-r", requirements],
        capture_output=True, text=True)
    if installed.returncode != 0:
        skip(f"PyPI is not at hand: {installed.stderr.strip()[-300:]}")
    mark.write_text(wanted)
    return python


def main() -> None:
    folder, requirements, program, *arguments = sys.argv[1:]
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = make(pathlib.Path(folder), pathlib.Path(requirements))
    sys.exit(subprocess.run([python, program, *arguments]).returncode)


if __name__ == "__main__":
    main()
