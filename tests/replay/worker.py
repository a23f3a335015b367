"""Compiles one case after the other with the compiler that PYTHONPATH names, and answers with digests of all files.

    python -PWignore worker.py STORE TARGETS SCRATCH < cases, a line of JSON each

A case is ``[model, arguments, seconds]``, an answer ``{"status", "files"}``: digests by path, under which STORE has the contents, without
what may differ; a traceback is printed. TARGETS is the tree's folder of targets outside of the compiler. Everything is compiled by the
command in SCRATCH, in the same relative places, so that no path tells one tree from the other. A case that takes more than so many seconds
of a processor, or ten times as many by the clock, ends the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sys
import traceback
import zlib
from pathlib import Path

INTERNAL = "internal error"  # instead of an exit status, where the compiler raises what is no error of its own
NOT_COMPARED = ("timings.json", "certificate.json")  # seconds, and digests of what is compared
_TOKEN = re.compile(rb'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def plain(name: str, content: bytes, version: str) -> bytes:
    """A file without the compiler's version and, in C, without comments and the blank lines and ends of lines that they leave."""
    if name.endswith((".c", ".h")):
        bare = _TOKEN.sub(lambda found: b" " if found[0].startswith(b"/") else found[0], content)
        return re.sub(rb"\s*\n", b"\n", bare).lstrip()
    return re.sub(rb"(?i)(deeploy |version\W{1,4})" + re.escape(version.encode()) + rb"\b", rb"\1VERSION", content)


def keep(store: Path, content: bytes) -> str:
    """Keep ``content`` in ``store``, under the digest that is returned."""
    digest = hashlib.sha256(content).hexdigest()[:24]
    if not (store / digest).exists():
        fresh = store / f"{digest}.{os.getpid()}"
        fresh.write_bytes(zlib.compress(content, 1))
        fresh.replace(store / digest)
    return digest


def called(arguments: list[str]) -> tuple[str, str]:
    """Exit status of the command, and what it printed on stderr."""
    from deeploy.cli import main

    sys.argv, errors = ["deeploy", *arguments], io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            main()
    except SystemExit as end:
        return f"exit status {end.code or 0}", errors.getvalue()
    except BaseException as error:
        traceback.print_exc()
        return INTERNAL, "".join(traceback.format_exception_only(error))
    return "exit status 0", errors.getvalue()


def main() -> None:
    store, targets, scratch = map(Path, sys.argv[1:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    os.chdir(scratch)
    os.environ["DEEPLOY_CACHE"] = str(scratch / "cache")
    for package in targets.glob("*/deeploy_*"):
        shutil.copytree(package, package.parent.name)
    from deeploy.version import VERSION

    known = {}  # kernels and runtime are the same in many projects
    for line in sys.stdin:
        model, arguments, seconds = json.loads(line)
        shutil.rmtree("out", ignore_errors=True)
        shutil.copyfile(model, "model.onnx")
        for timer, limit in ((signal.ITIMER_PROF, seconds), (signal.ITIMER_REAL, 10 * seconds)):
            signal.setitimer(timer, limit)
        status, errors = called(["compile", "model.onnx", *arguments, "-o", "out", "--no-cache"])
        files = {"stderr": keep(store, f"{status}\n{errors}".encode())}
        for path in sorted(Path("out").rglob("*")):
            if path.is_file() and path.name not in NOT_COMPARED:
                content = path.read_bytes()
                key = path.suffix, hash(content)
                if key not in known:
                    known[key] = keep(store, plain(path.name, content, VERSION))
                files[path.relative_to("out").as_posix()] = known[key]
        print(json.dumps({"status": status, "files": files}), file=answers, flush=True)


if __name__ == "__main__":
    main()
