"""Unit tests of scripts/robustness.py: rows that others bring, and the table."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import robustness  # noqa: E402


class Rows(unittest.TestCase):
    def test_limits_of_every_form(self):
        for given, wanted in ((None, None), (5, 5), (0.5, 0.5), ("5", 5.0), ("<= 2000", 2000.0), ("<=0.1", 0.1), ("", None)):
            self.assertEqual(robustness.limit_of(given), wanted)
        for bad in ("five", ">= 5", "< 5", [5]):
            with self.assertRaises(ValueError):
                robustness.limit_of(bad)

    def test_values_keep_four_digits_and_counts_are_whole(self):
        self.assertEqual(robustness.rounded(0.123456), 0.1235)
        self.assertEqual(robustness.rounded(1000012.0), 1000012)
        self.assertIsInstance(robustness.rounded(61.0), int)

    def test_a_file_of_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"rows": [{"name": "lost-grants", "value": 0, "unit": "grants", "limit": "0", "command": "x"}]}, file)
            self.assertEqual(robustness.read_rows(path)[0]["limit"], 0)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"rows": [{"name": "x"}]}, file)
            with self.assertRaises(KeyError):
                robustness.read_rows(path)


    def test_added_rows_take_the_place_of_their_namesakes(self):
        def row(name, value):
            return {"name": name, "value": value}
        rows = robustness.put([row("a", 1), row("b", 2)], [row("c", 5), row("a", 3)])
        self.assertEqual(rows, [row("a", 3), row("b", 2), row("c", 5)])

    def test_adding_measures_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            output, more, page = (os.path.join(folder, name) for name in ("out.json", "more.json", "page.md"))
            rows = [{"name": "a", "value": 1, "unit": "ms", "limit": None, "command": "x"}]
            with open(output, "w", encoding="utf-8") as file:
                json.dump({"machine": "m", "load": [0, 1], "date": "2026-01-31", "commit": "0123456789", "rows": rows}, file)
            with open(more, "w", encoding="utf-8") as file:
                json.dump({"rows": [{"name": "heap", "value": 2, "unit": "KB", "limit": 16, "command": "y"}]}, file)
            with open(page, "w", encoding="utf-8") as file:
                file.write(f"{robustness.BEGIN}\n{robustness.END}\n")
            self.assertEqual(robustness.main(["--add", more, "--output", output, "--table", page]), 0)
            with open(output, encoding="utf-8") as file:
                document = json.load(file)
            self.assertEqual([entry["name"] for entry in document["rows"]], ["a", "heap"])
            self.assertEqual(document["date"], "2026-01-31")
            with open(page, encoding="utf-8") as file:
                self.assertIn("| heap | 2 KB | <= 16 | `y` |", file.read())


class Table(unittest.TestCase):
    def document(self):
        rows = [{"name": "a", "value": 7, "unit": "ms", "limit": 5, "command": "vuda-load a"},
                {"name": "b", "value": 1000000, "unit": "operations", "limit": None, "command": "vuda-load b"}]
        return {"machine": "m", "load": [0, 1], "date": "2026-01-31", "commit": "0123456789abcdef", "rows": rows}

    def test_what_misses_its_limit_is_bold(self):
        text = robustness.table(self.document())
        self.assertIn("| a | **7 ms** | <= 5 | `vuda-load a` |", text)
        self.assertIn("| b | 1,000,000 operations |  | `vuda-load b` |", text)

    def test_only_what_is_between_the_markers_is_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            for _ in range(2):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"before\n{robustness.BEGIN}\nold\n{robustness.END}\nafter\n")
                robustness.replace_table(path, "new")
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), f"before\n{robustness.BEGIN}\nnew\n{robustness.END}\nafter\n")
            with open(path, "w", encoding="utf-8") as file:
                file.write("no markers\n")
            with self.assertRaises(SystemExit):
                robustness.replace_table(path, "new")


if __name__ == "__main__":
    unittest.main()
