"""Requests made of the server's own description, good ones and bad ones: no 500, no hang, nothing but
JSON that fits the description. Seeded, so that two runs ask the same.

usage: schema_fuzz_test.py PROGRAM [EXAMPLES]     so many of each endpoint and kind (4)
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from program import Server

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/pewter"
EXAMPLES = sys.argv.pop(1) if len(sys.argv) > 1 else "4"
CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance"


class Described(unittest.TestCase):
    def test_whatever_is_asked(self):
        schemathesis = pathlib.Path(sys.executable).with_name("schemathesis")
        # A short context: a request that names no length is answered until it is full.
        with Server(PROGRAM, "--max-model-len", "128") as server, tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [schemathesis, "run", server.url("/openapi.json"), "--checks", CHECKS, "--phases", "fuzzing",
                 "--max-examples", EXAMPLES, "--seed", "1", "--generation-deterministic", "--no-shrink",
                 "--request-timeout", "20", "--no-color"],
                capture_output=True, text=True, cwd=folder, timeout=1200)
            self.assertEqual(done.returncode, 0, done.stdout[-5000:] + done.stderr[-2000:])
            asked = int(re.search(r"(\d+) generated, \1 passed", done.stdout).group(1))
            print(f"  {asked} requests")
            self.assertGreater(asked, 30)
            self.assertEqual(server.request("GET", "/health")[0], 200)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
