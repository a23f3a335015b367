"""Runs on a board: a project is built for it and loaded, and a serial line brings inputs, outputs and measured cycles.

Projects that run under QEMU have ``runtime/board`` as well; ``board.mk`` there says what a board's folder holds. QEMU itself can stand in
for a board, with its serial line as a terminal of this machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.backend.project import read_manifest
from deeploy.documents import Document
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten, suggest
from deeploy.execution.runners.link import Facts, HostLine, Line, NoAnswer, Ran
from deeploy.execution.runners.processes import MORE_TIME, last_lines, run_make, run_together
from deeploy.execution.runners.qemu import FIT, OVERFLOW, compiler_of, require_tools
from deeploy.execution.runners.runner import Result, Samples, output_bytes, sample_bytes, self_test_macro, split_outputs
from deeploy.schemas import SELF_TEST_END

SECONDS = 60.0  # that an inference may take
_LOADING = 300.0  # seconds that loading a program may take
_BAUD = 115200
_FOLDER = Path("runtime/board")
_PORTS = ("serial/by-id/*", "cu.usb*")  # in /dev: the serial lines of boards on Linux, and on macOS
_TARGETS = re.compile(r"^BOARD_TARGETS\s*:?=\s*(.*)$", re.MULTILINE)
_SET_BAUD = re.compile(r"^BOARD_BAUD\s*[:?]?=\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Board:
    """Runs on a board.

    Attributes:
        board: a folder of ``runtime/board/boards``, or any with a ``board.mk``.
        port: the device of its serial line; where there is just one board with a name, this is found.
        seconds: that an inference may take.
    """

    board: str | None = None
    port: str | None = None
    seconds: float = SECONDS

    def check(self, project: Path, entry: Document) -> None:
        """Raise UsageError for several chips, a target without boards, or another board; BuildError without the tools."""
        if "chips" in entry:
            raise UsageError("--on board: several chips do not run there", "Run them on the host, with --on mpi or with --on gvsoc.")
        if not (project / _FOLDER / "board.mk").is_file():
            raise UsageError(
                f"--on board: target {entry['target']} has no boards", "Compile for a microcontroller: docs/boards.md lists the boards."
            )
        rules = self._rules(project)
        wanted = _TARGETS.search(rules)
        if wanted is None or entry["target"] not in wanted[1].split():
            runs = shorten(wanted[1].strip()) if wanted is not None else "no target that it names"
            raise UsageError(f"--board {shorten(str(self.board))}: programs of {entry['target']} do not run there", f"It runs {runs}.")
        require_tools([compiler_of((project / "Makefile").read_text(encoding="utf-8"))])
        if importlib.util.find_spec("serial") is None:
            raise BuildError("--on board needs the package pyserial", "pip install pyserial")

    def build(self, project: Path, entry: Document, sequence: bool = False, defines: str = "") -> Sequence[Path]:
        """Builds the program for the board; returns the folder with it."""

        def failure(text: str, command: Sequence[str]) -> DeeployError:
            overflow = OVERFLOW.search(text)
            if overflow is not None:
                return FitError(f"the program for the board does not fit: {overflow[1]}", FIT)
            return BuildError(
                f"the project in {project} does not build for the board:\n{last_lines(text)}", f"See all of it: {' '.join(command)}"
            )

        run_make(project, [*self._options(project, entry, defines), "board"], failure)
        return [project / self._place(entry, defines)]

    def self_test(self, project: Path, entry: Document) -> str:
        """What the project's self-test prints on the board (``SelfTests``)."""
        self.check(project, entry)
        self.build(project, entry, defines=self_test_macro(entry))
        self._load(project, entry, self_test_macro(entry))
        text, silent = "", 0
        with _open_line(self._port(), self._baud(project)) as line:
            while SELF_TEST_END.search(text) is None and silent < self.seconds:  # a read waits for a second
                if not text:
                    line.write(b"\n")
                piece = line.read(256)
                text, silent = text + piece.decode("ascii", "replace"), 0 if piece else silent + 1
        if not text:
            raise BuildError(f"the board printed nothing for {self.seconds:g} seconds", MORE_TIME)
        return text

    def run(self, project: Path, entry: Document, samples: Samples, sequence: bool = False) -> Result:
        """One inference per sample; cycles are those of the board's clock, of layers in the first sample.

        Raises:
            DeeployError: see ``check`` and ``build``; or the program cannot be loaded, does not answer or fails.
        """
        outputs, cycles, layers = b"", [], list[int]()
        with self._program(project, entry) as (link, facts):
            for index, sample in enumerate(samples):
                link.write(sample_bytes(entry, sample))
                cycles.append(self._inference(link, not sequence or not index).cycles)
                outputs += link.read(facts.output_bytes)
                layers = layers or link.cycles(facts.layers)
        named = tuple((call["name"], count) for call, count in zip(entry["calls"], layers, strict=True))
        return Result(split_outputs(outputs, entry["outputs"], len(samples)), tuple(cycles), named, mhz=facts.hertz / 1e6)

    def snapshots(self, project: Path, entry: Document, sample: Sequence[np.ndarray]) -> bytes:
        """The results of each layer as the board leaves them (``Snapshots``)."""
        if entry["machine"] is not None:
            what = "--layers --on board: layers of a machine with several memories are not compared on boards"
            raise UsageError(what, "Say --on qemu or --on gvsoc, or leave --on out.")
        with self._program(project, entry) as (link, _):
            link.write(sample_bytes(entry, sample))
            return self._inference(link, True, True).snapshots

    def _inference(self, link: HostLine, is_anew: bool, has_snapshots: bool = False) -> Ran:
        try:
            return link.run(is_anew, self.seconds, has_snapshots)
        except NoAnswer:
            raise BuildError(f"the board did not answer within {self.seconds:g} seconds of an inference", MORE_TIME) from None

    @contextmanager
    def _program(self, project: Path, entry: Document) -> Iterator[tuple[HostLine, Facts]]:
        """Check, build, load the program unless it runs already, and talk with it."""
        self.check(project, entry)
        self.build(project, entry)
        number, port = self._number(project, entry), self._port()
        try:
            facts = _ask_board(port, self._baud(project))
            if facts is None or facts.program != number:
                self._load(project, entry)
            with _open_line(port, self._baud(project)) as line:
                link = HostLine(line)
                facts = link.hello()
                wanted = (output_bytes(entry["inputs"], 1), output_bytes(entry["outputs"], 1), len(entry["calls"]))
                if facts.program != number or (facts.input_bytes, facts.output_bytes, facts.layers) != wanted:
                    raise BuildError(
                        "the board runs another program than the one that was loaded", "See that it starts the new one: reset it."
                    )
                yield link, facts
        except NoAnswer:
            what = f"nothing on {shorten(port)} speaks the protocol of the program that was loaded"
            raise BuildError(
                what, "See that --port is the board's serial line, that no other program reads it, and reset the board."
            ) from None

    def _load(self, project: Path, entry: Document, defines: str = "") -> None:
        (done,) = run_together([["make", "-s", "-C", str(project), *self._options(project, entry, defines), "load-board"]], _LOADING)
        if done.returncode is None:
            raise BuildError(f"loading the program took more than {_LOADING:g} seconds", "See that the board is connected and has power.")
        if done.returncode:
            raise BuildError(f"the program cannot be loaded onto the board:\n{last_lines(done.stdout)}", "See what the board's tool says.")

    def _rules(self, project: Path) -> str:
        """The board.mk of the board."""
        known = sorted(path.parent.name for path in (project / _FOLDER / "boards").glob("*/board.mk"))
        if self.board is None:
            raise UsageError("--on board needs a board", f"Name one with --board: {', '.join(known)}, or a folder with a board.mk.")
        own = Path(self.board)
        if self.board not in known and any(letter.isspace() for letter in str(own.resolve())):
            raise UsageError(f"--board {shorten(self.board)}: make cannot read folders with spaces in their path", "Move the folder.")
        rules = (project / _FOLDER / "boards" / self.board if self.board in known else own) / "board.mk"
        if rules.is_file():
            return rules.read_text(encoding="utf-8", errors="replace")
        raise UsageError(
            f"--board {shorten(self.board)}: there is no such board",
            f"{suggest(self.board, known)}Name one of {', '.join(known)}, or a folder with a board.mk.",
        )

    def _baud(self, project: Path) -> int:
        match = _SET_BAUD.search(self._rules(project))
        return int(match[1]) if match is not None else _BAUD

    def _port(self) -> str:
        if self.port is not None:
            return self.port
        ports = find_ports()
        if len(ports) != 1:
            problem = f"there are {len(ports)} boards: {', '.join(map(str, ports))}" if ports else "no board is plugged in"
            raise UsageError(
                f"--on board without --port, and {shorten(problem, 300)}", "Name the board's serial line: --port /dev/ttyACM0."
            )
        return str(ports[0])

    def _place(self, entry: Document, defines: str) -> str:
        return f"build/board/{entry['name']}_{hashlib.sha256(f'{self.board}{defines}'.encode()).hexdigest()[:8]}"

    def _number(self, project: Path, entry: Document) -> int:
        """A number that other programs hardly have: a hash of the project's files and of its network."""
        whole = hashlib.sha256(f"{entry['name']} {self.board}".encode())
        build = project / "build"
        for path in sorted(
            p for p in project.rglob("*") if p.is_file() and build not in p.parents and p.suffix in (".c", ".h", ".S", ".mk", ".bin")
        ):
            whole.update(path.read_bytes())
        return int.from_bytes(whole.digest()[:4], "little")

    def _options(self, project: Path, entry: Document, defines: str = "") -> list[str]:
        """The variables of the Makefile for the program."""
        manifest = read_manifest(project)
        names = [other["name"] for other in manifest.get("networks") or [manifest]]
        given = (
            f"-DNETWORK={names.index(entry['name'])} -DLAYERS={len(entry['calls'])} -DPROGRAM_ID={self._number(project, entry)}u {defines}"
        )
        is_known = (project / _FOLDER / "boards" / str(self.board) / "board.mk").is_file()
        board = self.board if is_known else Path(str(self.board)).resolve()
        return [
            f"BOARD={board}",
            f"BOARD_PORT={self._port()}",
            f"BOARD_BUILD={self._place(entry, defines)}",
            f"DEFINES={given}",
            *(["BOARD_PROGRAM=test"] if defines else []),
        ]


def find_ports(devices: Path = Path("/dev")) -> list[Path]:
    """The serial lines of boards that are plugged in."""
    return sorted(path for pattern in _PORTS for path in devices.glob(pattern))


@contextmanager
def _open_line(port: str, baud: int) -> Iterator[Line]:
    import serial

    try:
        line = serial.Serial(port, baud, timeout=1.0, write_timeout=10.0)
    except (serial.SerialException, ValueError) as error:
        raise BuildError(
            f"the serial line {shorten(port)} cannot be opened: {shorten(str(error), 200)}", "Name the board's with --port."
        ) from None
    with line:
        try:
            yield line
        except (serial.SerialException, OSError) as error:
            raise BuildError(f"the serial line {shorten(port)} broke off: {shorten(str(error), 200)}", "Plug the board in again.") from None


def _ask_board(port: str, baud: int) -> Facts | None:
    """What the program on a board says of itself now; None where nothing answers."""
    try:
        with _open_line(port, baud) as line:
            return HostLine(line).hello(tries=1)
    except (NoAnswer, DeeployError):
        return None
