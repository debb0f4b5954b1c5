#!/usr/bin/env python3
"""The verdict on a racecheck log: which hazards it reports, and whether they are the known ones.

    racecheck_verdict.py LOG CUBIN [--nvdisasm PROGRAM]

compute-sanitizer's racecheck does not follow the mbarriers that order a bulk copy (UBLKCP) and
the reads of its data (LDS), so it reports each such pair of the weight ring. The ring's `full` and
`empty` barriers order those pairs. The verdict is "passed" only if the test itself passed and
every reported hazard is such a pair, recognized by the instructions at the reported addresses of
the cubin that ran. Anything else fails, including an unreadable log.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

HAZARD = re.compile(r"(Error|Warning): .*?(?:Race|hazard)", re.IGNORECASE)
PLACE = re.compile(r"(Write|Read) access at (\S+?)\+0x([0-9a-f]+)")
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)")
KNOWN = {("Write", "UBLKCP"), ("Read", "LDS")}


def instructions(cubin: Path, nvdisasm: str) -> dict[int, str]:
    """Address to instruction (without modifiers) of the one kernel in a cubin."""
    text = subprocess.run([nvdisasm, "-c", str(cubin)], check=True, capture_output=True, text=True)
    found = {int(at, 16): name.split(".")[0] for at, name in INSTRUCTION.findall(text.stdout)}
    if "UBLKCP" not in found.values():
        sys.exit(f"{cubin}: no bulk copy in its machine code: is it the kernel that ran?")
    return found


def verdict(log: str, code: dict[int, str]) -> tuple[list[str], Counter]:
    """The problems, and how often each kind of access was reported."""
    problems, seen = [], Counter()
    summary = SUMMARY.search(log)
    if summary is None:
        problems.append("no summary of racecheck's: it did not finish")
    if not re.search(r"test result: ok\. [1-9]", log):
        problems.append("the test itself did not pass")
    reported = 0
    for line in log.splitlines():
        reported += HAZARD.search(line) is not None
        for access, function, at in PLACE.findall(line):
            name = code.get(int(at, 16), "no instruction")
            seen[access, name] += 1
            if (access, name) not in KNOWN:
                problems.append(f"{access} by {name} at {function}+0x{at}")
    if summary and int(summary[1]) != reported:
        problems.append(f"{summary[1]} hazards in the summary, but {reported} in the log")
    return list(dict.fromkeys(problems)), seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("cubin", type=Path)
    parser.add_argument("--nvdisasm", default="nvdisasm")
    options = parser.parse_args()
    code = instructions(options.cubin, options.nvdisasm)
    problems, seen = verdict(options.log.read_text(), code)
    for (access, name), count in sorted(seen.items()):
        print(f"{count} {access.lower()}s by {name}")
    for problem in problems:
        print(f"not known: {problem}")
    print("racecheck verdict: " + ("failed" if problems else
          "passed: bulk copies against the ring's reads, ordered by mbarriers, and nothing else"))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
