"""Tests of racecheck_verdict.py: python3 -m unittest discover -s tools."""

import unittest

from racecheck_verdict import INSTRUCTION, verdict

CODE = {0x10: "UBLKCP", 0x20: "LDS", 0x30: "STS"}


def log(write=0x10, read=0x20, hazards=1, result="ok", summary=True):
    lines = ["========= COMPUTE-SANITIZER"]
    for _ in range(hazards):
        lines.append(f"test a ... ========= Error: Race reported between Write access at step+0x{write:x}")
        lines.append(f"=========     and Read access at step+0x{read:x} [64 hazards]")
    lines.append(f"test result: {result}. 1 passed; 0 failed")
    if summary:
        lines.append("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")
    return "\n".join(lines)


class Verdict(unittest.TestCase):
    def problems(self, **changes):
        return verdict(log(**changes), CODE)[0]

    def test_the_rings_copies_pass(self):
        problems, seen = verdict(log(), CODE)
        self.assertEqual(problems, [])
        self.assertEqual(seen, {("Write", "UBLKCP"): 1, ("Read", "LDS"): 1})

    def test_other_accesses_fail_by_name(self):
        self.assertEqual(self.problems(write=0x30), ["Write by STS at step+0x30"])
        self.assertEqual(self.problems(read=0x30), ["Read by STS at step+0x30"])
        self.assertEqual(self.problems(read=0x40), ["Read by no instruction at step+0x40"])

    def test_what_is_not_whole_fails(self):
        self.assertIn("no summary of racecheck's: it did not finish", self.problems(summary=False))
        self.assertIn("the test itself did not pass", self.problems(result="FAILED"))
        self.assertIn("1 hazards in the summary, but 2 in the log", self.problems(hazards=2))
        self.assertEqual(len(verdict("", CODE)[0]), 2)

    def test_instructions_are_read_with_and_without_predicate(self):
        lines = "/*0010*/  @!P0 LDS.128 R4, [R2] ;\n/*1a20*/   UBLKCP.T.S [UR4], [UR6] ;\n"
        self.assertEqual(INSTRUCTION.findall(lines), [("0010", "LDS.128"), ("1a20", "UBLKCP.T.S")])


if __name__ == "__main__":
    unittest.main()
