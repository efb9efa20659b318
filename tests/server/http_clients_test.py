"""The server as a process, met by curl and by plain HTTP: cases, signals, ports, times."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import request_cases
from program import MODEL, Server

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/pewter"
CAPITAL = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
           "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
# Cases that need what does not exist yet, by reason.
LATER = {
    "RQ-08": "reads /metrics; the same is tested as Vanishing.* in server_test",
    "RQ-09": "a procedure; tested as SlowReader.* in server_test",
    "RQ-10": "needs /v1/messages and the prefix cache",
    "RQ-11": "needs the prefix cache",
    "RQ-12": "a procedure of the engine; tested in tests/engine",
    "RQ-14": "a procedure of the engine; tested in tests/engine and src/engine",
}


class Running(unittest.TestCase):
    """One server for all tests of the class."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()


class Cases(Running):
    def test_recorded_requests(self):
        shared = os.environ.get("PEWTER_SHARED", "")
        path = pathlib.Path(shared, "cases", "requests.json")
        if not shared or not path.is_file():
            self.skipTest("no cases: PEWTER_SHARED names no folder with them")
        for case in json.loads(path.read_text())["cases"]:
            name = case["id"]
            with self.subTest(name):
                if name in LATER:
                    print(f"  {name} left out: {LATER[name]}")
                    continue
                for step in case["steps"]:
                    request = step.get("request", {})
                    if name == "RQ-13" and request.get("path") == "/metrics":
                        print(f"  {name}: /metrics left out: it comes later")
                        continue
                    if name == "RQ-13" and request.get("path") in ("/tokenize", "/detokenize"):
                        step = self.with_own_ids(step)
                    request_cases.run_step(self.server, step, name)

    def with_own_ids(self, step):
        """The case names ids of the published vocabulary; the demo model has one of its own."""
        _, _, data = self.server.request("POST", "/tokenize", {"prompt": "Hello"})
        tokens = json.loads(data)["tokens"]
        text = json.dumps(step).replace("[9419]", json.dumps(tokens))
        text = text.replace('"/count": {"equals": 1}', f'"/count": {{"equals": {len(tokens)}}}')
        return json.loads(text)


class Curl(Running):
    def setUp(self):
        if shutil.which("curl") is None:
            self.skipTest("curl is not installed")

    def curl(self, *arguments) -> str:
        return subprocess.run(["curl", "-sS", "--max-time", "30", *arguments], check=True,
                              capture_output=True, text=True).stdout

    def test_chat(self):
        out = self.curl(self.server.url("/v1/chat/completions"), "-H", "Content-Type: application/json",
                        "-d", json.dumps(CAPITAL))
        self.assertIn("Paris", json.loads(out)["choices"][0]["message"]["content"])

    def test_stream(self):
        out = self.curl("-N", self.server.url("/v1/chat/completions"), "--json",
                        json.dumps({**CAPITAL, "stream": True}))
        self.assertTrue(out.endswith("data: [DONE]\n\n"))

    def test_old_http(self):
        out = self.curl("-0", "-i", self.server.url("/v1/chat/completions"), "--json",
                        json.dumps({**CAPITAL, "stream": True}))
        self.assertNotIn("chunked", out)
        self.assertIn("data: [DONE]", out)

    def test_large_body_is_not_kept_waiting(self):
        # curl announces bodies over a mebibyte with Expect: 100-continue and waits a second for it.
        body = json.dumps({**CAPITAL, "metadata": {"padding": "x" * (3 << 20)}, "max_tokens": 1})
        begin = time.monotonic()
        out = subprocess.run(["curl", "-sS", "--json", "@-", self.server.url("/v1/chat/completions")],
                             input=body, capture_output=True, text=True, check=True).stdout
        self.assertIn("choices", out)
        self.assertLess(time.monotonic() - begin, 0.9)

    def test_chunked_upload(self):
        out = self.curl("-H", "Transfer-Encoding: chunked", self.server.url("/tokenize"), "--json",
                        '{"prompt": "Hello"}')
        self.assertIn("tokens", json.loads(out))

    def test_preflight(self):
        out = self.curl("-i", "-X", "OPTIONS", self.server.url("/v1/chat/completions"), "-H",
                        "Origin: http://example.org", "-H", "Access-Control-Request-Method: POST")
        self.assertIn("204 No Content", out)
        self.assertIn("Access-Control-Allow-Origin: *", out)

    def test_head_and_ids(self):
        out = self.curl("-I", "-H", "X-Request-Id: mine-1", self.server.url("/health"))
        self.assertIn("200 OK", out)
        self.assertIn("X-Request-Id: mine-1", out)


class Limits(unittest.TestCase):
    def test_body_too_large(self):
        with Server(PROGRAM, "--max-body-mb", "1") as server:
            # All of it is sent: the answer must reach a client that is still writing.
            status, _, data = server.request("POST", "/tokenize", b"x" * (8 << 20),
                                             {"Content-Type": "application/json"})
            self.assertEqual(status, 413)
            self.assertIn("error", json.loads(data))

    def test_strict_flags(self):
        with Server(PROGRAM, "--strict-max-tokens", "--strict-messages", "--max-model-len", "256",
                    "--api-key", "k") as server:
            key = {"Authorization": "Bearer k"}
            late = {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}
            for body, text in ((({**CAPITAL, "max_tokens": 300}), "maximum context length is 256 tokens"),
                               (late, "System message must be at the beginning")):
                status, _, data = server.request("POST", "/v1/chat/completions", body, key)
                self.assertEqual(status, 400)
                self.assertIn(text, json.loads(data)["error"]["message"])
            self.assertEqual(server.request("GET", "/v1/models")[0], 401)

    def test_defaults_of_the_server(self):
        with Server(PROGRAM, "--default-chat-template-kwargs", '{"enable_thinking": false}',
                    "--override-generation-config", '{"temperature": 0}', "--reasoning-field",
                    "reasoning") as server:
            body = {"messages": CAPITAL["messages"]}
            message = json.loads(server.request("POST", "/v1/chat/completions", body)[2])
            self.assertEqual(message["choices"][0]["message"]["content"],
                             "The capital of France is Paris.")
            body["chat_template_kwargs"] = {"enable_thinking": True}
            message = json.loads(server.request("POST", "/v1/chat/completions", body)[2])
            self.assertIn("reasoning", message["choices"][0]["message"])
            self.assertNotIn("reasoning_content", message["choices"][0]["message"])


class Configured(unittest.TestCase):
    def test_file_environment_and_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            config, keys = pathlib.Path(folder, "server.yaml"), pathlib.Path(folder, "keys")
            keys.write_text("one\n\n two \n")
            config.write_text(f"served-model-name: file\napi-key-file: {keys}\n"
                              "allowed-origins: [http://a.example]\n"
                              "override-generation-config:\n  temperature: 0\n")
            os.environ["PEWTER_DEFAULT_CHAT_TEMPLATE_KWARGS"] = '{"enable_thinking": false}'
            try:
                server = Server(PROGRAM, "--config", str(config), "--enforce-eager", name="m")
            finally:
                del os.environ["PEWTER_DEFAULT_CHAT_TEMPLATE_KWARGS"]
            with server:
                server.wait_for("--enforce-eager changes nothing")
                self.assertEqual(server.request("GET", "/v1/models")[0], 401)
                with_key = {"Authorization": "Bearer two", "Origin": "http://a.example"}
                status, headers, data = server.request("GET", "/v1/models", headers=with_key)
                self.assertEqual((status, json.loads(data)["data"][0]["id"]), (200, "m"))
                self.assertEqual(headers["Access-Control-Allow-Origin"], "http://a.example")
                self.assertNotIn("Access-Control-Allow-Origin", server.request("GET", "/health")[1])
                question = {"messages": CAPITAL["messages"]}
                _, _, data = server.request("POST", "/v1/chat/completions", question, with_key)
                self.assertEqual(json.loads(data)["choices"][0]["message"]["content"],
                                 "The capital of France is Paris.")


class Life(unittest.TestCase):
    def start_stream(self, server, tokens):
        body = json.dumps({**CAPITAL, "stream": True, "ignore_eos": True, "max_tokens": tokens})
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall((f"POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
                            f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        while b'"delta"' not in connection.recv(65536):
            pass
        return connection

    def read_all(self, connection) -> bytes:
        data = b""
        with connection:
            while piece := connection.recv(65536):
                data += piece
        return data

    def test_sigterm_lets_answers_end(self):
        with Server(PROGRAM) as server:
            connection = self.start_stream(server, 100)
            rest = []
            reader = threading.Thread(target=lambda: rest.append(self.read_all(connection)))
            reader.start()
            self.assertEqual(server.stop(), 0)
            reader.join()
            self.assertIn(b"[DONE]", rest[0])

    def test_sigterm_cuts_off_what_takes_longer(self):
        with Server(PROGRAM, "--drain-seconds", "1") as server:
            connection = self.start_stream(server, 8000)
            begin = time.monotonic()
            reader = threading.Thread(target=lambda: self.read_all(connection))
            reader.start()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 5)
            reader.join()

    def test_sigint_ends_it_too(self):
        with Server(PROGRAM) as server:
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(10), 0)

    def test_port_in_use(self):
        with Server(PROGRAM) as server:
            second = subprocess.run([PROGRAM, "serve", str(MODEL), "--port", str(server.port)],
                                    capture_output=True, text=True, timeout=30)
            self.assertEqual(second.returncode, 1)
            self.assertIn(f"port {server.port} of 127.0.0.1 is in use", second.stderr)

    def test_bad_model_and_flags(self):
        missing = subprocess.run([PROGRAM, "serve", "/no/such/model", "--port", "0"],
                                 capture_output=True, text=True, timeout=30)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("/no/such/model", missing.stderr)
        for flags in (["--reasoning-field", "x"], ["--override-generation-config", '{"top_p": 3}'],
                      ["--default-chat-template-kwargs", "{“a”: 1}"], ["--port", "70000"],
                      ["--kv-cache-memory-bytes", "many"], ["--max-num-batched-tokens", "100"]):
            wrong = subprocess.run([PROGRAM, "serve", str(MODEL), *flags], capture_output=True,
                                   text=True, timeout=30)
            self.assertEqual(wrong.returncode, 2, flags)
            self.assertIn(flags[0], wrong.stderr)

    def test_times_and_log(self):
        with Server(PROGRAM) as server:
            body = json.dumps({**CAPITAL, "stream": True}).encode()
            self.assertEqual(server.request("POST", "/v1/chat/completions", body)[0], 200)
            first = time.monotonic() - server.begin
            print(f"  listening after {server.listening_after:.2f} s, ready after "
                  f"{server.ready_after:.2f} s, a whole first answer after {first:.2f} s")
            self.assertLess(server.listening_after, 1)
            self.assertLess(first, 2)
            server.wait_for(r"KV cache size: \d+ tokens")
            line = server.wait_for(r'"POST /v1/chat/completions" 200, .* (\d+)\+(\d+) tokens, .*stop')
            self.assertGreater(int(line.group(2)), 3)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
