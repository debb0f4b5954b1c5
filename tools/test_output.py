"""Tests of output.py: python3 -m unittest discover -s tools."""

import io
import os
import tempfile
import unittest
from pathlib import Path

from output import Progress, replaced, write_whole


class Whole(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "out.json"

    def names(self):
        return [path.name for path in self.path.parent.iterdir()]

    def test_a_file_is_replaced_whole(self):
        write_whole(self.path, "one")
        write_whole(self.path, "two")
        self.assertEqual(self.path.read_text(), "two")
        self.assertEqual(self.names(), ["out.json"])
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o666 & ~mask)

    def test_what_ends_early_leaves_the_old_file_alone(self):
        write_whole(self.path, "one")
        for error in [KeyboardInterrupt, OSError]:
            with self.assertRaises(error), replaced(self.path) as part:
                part.write_text("half")
                raise error
            self.assertEqual(self.path.read_text(), "one")
            self.assertEqual(self.names(), ["out.json"])

    def test_two_writers_do_not_share_a_temporary_file(self):
        with replaced(self.path) as one, replaced(self.path) as two:
            self.assertNotEqual(one, two)
            one.write_text("one")
            two.write_text("two")
        self.assertEqual(self.path.read_text(), "one")
        self.assertEqual(self.names(), ["out.json"])

    def test_a_missing_folder_is_an_error(self):
        with self.assertRaises(FileNotFoundError):
            write_whole(self.path.parent / "none" / "out.json", "")


class Lines(unittest.TestCase):
    def test_a_line_now_and_then(self):
        now, stream = [0.0], io.StringIO()
        progress = Progress("tool", every=5.0, clock=lambda: now[0], stream=stream)
        for second in range(12):
            now[0] = float(second)
            progress.step("step", second, 12)
        progress.say("done")
        lines = ["tool: step: 0 of 12", "tool: step: 5 of 12", "tool: step: 10 of 12", "tool: done"]
        self.assertEqual(stream.getvalue().splitlines(), lines)


if __name__ == "__main__":
    unittest.main()
