"""Holds tests/case_map.json to what it names: every recorded case has a test that is there."""

import json
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAP = json.loads((ROOT / "tests/case_map.json").read_text())["cases"]


class CaseMap(unittest.TestCase):
    def test_names_what_is_there(self):
        for name, entry in MAP.items():
            with self.subTest(name):
                self.assertTrue(entry.keys() & {"own", "test", "later"})
                if "own" in entry:
                    file, case = entry["own"]
                    cases = json.loads((ROOT / file).read_text())["cases"]
                    self.assertIn(case, [one["id"] for one in cases])
                if "test" in entry:
                    file, line = entry["test"]
                    self.assertTrue(line in (ROOT / file).read_text(), f"{file} has no {line}")

    def test_leaves_no_case_out(self):
        folder = pathlib.Path(os.environ.get("PEWTER_SHARED", ""), "cases")
        if not os.environ.get("PEWTER_SHARED") or not folder.is_dir():
            self.skipTest("PEWTER_SHARED names no folder with cases")
        known = {case["id"] for path in folder.glob("*.json")
                 for case in json.loads(path.read_text())["cases"]}
        self.assertEqual(known, set(MAP))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(0 if result.wasSuccessful() else 1)
