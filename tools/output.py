"""Shared by the tools: progress on stderr, and files that are written whole or not at all."""

import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

# Seconds between two lines of progress.
EVERY = 5.0


class Progress:
    """Prints progress: `step` may be called often, but prints at most every few seconds."""

    def __init__(self, name=None, every=EVERY, clock=time.monotonic, stream=None):
        self.name = name or Path(sys.argv[0]).name
        self.every, self.clock = every, clock
        self.stream = stream or sys.stderr
        self.printed = None

    def say(self, what):
        """Prints at once."""
        self.printed = self.clock()
        print(f"{self.name}: {what}", file=self.stream, flush=True)

    def step(self, what, done, of):
        """Prints `what` with a count, unless a line was printed a moment ago."""
        if self.printed is None or self.clock() - self.printed >= self.every:
            self.say(f"{what}: {done} of {of}")


@contextmanager
def replaced(path):
    """Yields a temporary path beside `path`. If the block succeeds, the temporary file replaces
    `path`; otherwise it is removed, and `path` stays unchanged."""
    path = Path(path)
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".part")
    os.close(descriptor)
    part = Path(part)
    try:
        yield part
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path, text):
    with replaced(path) as part:
        part.write_text(text)
