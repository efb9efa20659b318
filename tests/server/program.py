"""The built server as a process, for tests: started on a free port, stopped at the end."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"


class Server:
    """`pewter serve MODEL --port 0 ARGUMENTS`; ready when made."""

    def __init__(self, program: str, *arguments: str, name: str = "m"):
        self.begin = time.monotonic()
        self.log_file = tempfile.NamedTemporaryFile(mode="r", suffix=".log")
        with open(self.log_file.name, "w") as log:
            self.process = subprocess.Popen(
                [program, "serve", str(MODEL), "--port", "0", "--served-model-name", name, *arguments],
                stderr=log, env={k: v for k, v in os.environ.items() if k != "PEWTER_API_KEY"})
        self.port = int(self.wait_for(r"listening on http://[^ ]*:(\d+)").group(1))
        self.listening_after = time.monotonic() - self.begin
        self.wait_for(r"Application startup complete")
        self.ready_after = time.monotonic() - self.begin

    def log(self) -> str:
        return pathlib.Path(self.log_file.name).read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 30):
        """The match of a pattern in the log, once it is there."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.log())
            if found:
                return found
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f"{pattern!r} did not come up in the log:\n{self.log()}")
            time.sleep(0.01)

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def request(self, method: str, path: str, body=None, headers=None):
        """Status, headers and body of an answer; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.headers, data

    def stop(self, seconds: float = 20) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log_file.close()
