"""What a terminal shows while a command works: the stage that runs, and its seconds once it takes more than two."""

from __future__ import annotations

import sys
import threading
import time

PATIENCE = 2.0  # seconds of a stage before they are counted


class Progress:
    """One line on standard error; silent where that is no terminal."""

    def __enter__(self) -> Progress:
        self._is_terminal = sys.stderr.isatty()
        self._stage, self._since = "", time.monotonic()
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        if self._is_terminal:
            self._clock.start()
        return self

    def __call__(self, stage: str) -> None:
        self._stage, self._since = stage, time.monotonic()
        self._show()

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            if self._stage and time.monotonic() - self._since > PATIENCE:
                self._show()

    def _show(self) -> None:
        if self._is_terminal:
            seconds = time.monotonic() - self._since
            spent = f" {seconds:.0f} s" if seconds > PATIENCE else ""
            print(f"\r\x1b[K{self._stage} ...{spent}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._is_terminal:
            self._clock.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
