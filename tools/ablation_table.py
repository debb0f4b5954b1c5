"""Renders the ablation's table from the logs of `tools/gpu_checks.sh BIN OUT ablation`.

    python3 tools/ablation_table.py OUT bf16|fp8

Fails if a row is missing, or if its tokens are not the headline row's.
"""

import json
import sys
from pathlib import Path

ROWS = [
    "flag",
    "flag-apart",
    "counter",
    "barrier",
    "dependent",
    "dependent-apart",
    "dependent-graph",
    "dependent-graph-apart",
    "graph",
    "graph-apart",
]


def measured(log):
    """The one row that a bench printed, among what it said."""
    lines = log.read_text().splitlines() if log.is_file() else []
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return rows[0] if rows else None


def main(out, form):
    found = {row: measured(Path(out) / f"ablation-{form}-{row}-bench.log") for row in ROWS}
    missing = [row for row, bench in found.items() if bench is None]
    headline = found["flag"]
    if headline is None:
        sys.exit("the headline row is missing")
    print("| row | launches a token | tok/s | us a token | more than the headline | tokens |")
    print("|---|---|---|---|---|---|")
    differ = []
    for row, bench in found.items():
        if bench is None:
            continue
        us, least = 1e6 / bench["tok_s_median"], 1e6 / headline["tok_s_median"]
        same = bench["tokens_sha256"] == headline["tokens_sha256"]
        if not same:
            differ.append(row)
        print(
            f"| `{form}-{row}` | {bench['launches_per_token']:.0f} | {bench['tok_s_median']:.0f} "
            f"| {us:.1f} | {us - least:+.1f} us | {'the same' if same else 'OTHER TOKENS'} |"
        )
    print(f"\nTokens of the headline row: {headline['tokens_sha256']}, {headline['test']}.")
    if missing or differ:
        sys.exit(f"missing: {missing}; other tokens: {differ}")


main(*sys.argv[1:])
