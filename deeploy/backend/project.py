"""Projects on disk: written whole or not at all, and never over a folder that is not ours."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deeploy.documents import Contents, Document, check_document, load_document, read_document
from deeploy.errors import UsageError, shorten, suggest
from deeploy.schemas import GENERATOR, KINDS, MANIFEST, PLAN, SCHEMA

_ANOTHER_FOLDER = "Name another output folder (-o); it is replaced as a whole, so the folder around it must be yours to write."

_FIRST = "Compile one first: deeploy compile ... -o OUT"


@contextmanager
def _translate_errors(path: Path, remedy: str) -> Iterator[None]:
    """Turn what the system has against writing ``path`` into an error of two lines."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{shorten(str(path), 160)} cannot be written: {error.strerror or error}", remedy) from error
    except RuntimeError as error:  # what pathlib says of links that lead in a circle
        raise UsageError(f"{shorten(str(path), 160)} cannot be written: its links lead in a circle", remedy) from error


def check_destination(folder: Path) -> None:
    """Raise UsageError unless ``folder`` is absent, empty, or a project of ours, and can be written."""
    with _translate_errors(folder, _ANOTHER_FOLDER):
        _check_destination(folder)


def _check_destination(folder: Path) -> None:
    if not folder.exists():
        ancestor = next(p for p in folder.resolve().parents if p.exists())
        if not ancestor.is_dir():
            raise UsageError(f"{folder} cannot be created: {ancestor} is not a folder", "Name another output folder (-o).")
        _check_permission(folder, ancestor)
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} exists and is not a folder", "Name another output folder (-o).")
    if any(folder.iterdir()) and not _is_ours(folder):
        raise UsageError(f"{folder} exists and was not written by {GENERATOR}", "Name another output folder (-o), or empty this one.")
    _check_permission(folder, folder.resolve().parent)


def _check_permission(folder: Path, around: Path) -> None:
    if not os.access(around, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written: there is no permission to write in {around}", _ANOTHER_FOLDER)


def check_file(path: Path, option: str) -> None:
    """Raise UsageError unless a file can be put at ``path``, which ``option`` names."""
    with _translate_errors(path, f"Give {option} a file in a folder that exists."):
        if path.is_dir() or not path.parent.is_dir():
            problem = "it is a folder" if path.is_dir() else "its folder does not exist"
            raise UsageError(f"{option} {path} cannot be written: {problem}", f"Give {option} a file in a folder that exists.")


def write_file(path: Path, data: bytes, option: str) -> None:
    """Put ``data`` in place of whatever file ``path`` was before; a failure leaves the old one untouched."""
    check_file(path, option)
    with _translate_errors(path, f"Give {option} a file in a folder that you may write to."):
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_bytes(data)
            return
        target = path.resolve()
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:40]}.", dir=target.parent) as scratch:
            fresh = Path(scratch) / "new"
            fresh.write_bytes(data)
            fresh.replace(target)


def _is_ours(folder: Path) -> bool:
    return _is_generated(folder, MANIFEST) or _is_generated(folder, PLAN)


def _is_generated(folder: Path, kind: str) -> bool:
    try:
        document = load_document(folder / kind, kind)[0]
    except UsageError:
        return False
    return isinstance(document, dict) and document.get("generator") == GENERATOR


def read_plan(folder: Path) -> Contents | None:
    """The parsed ``plan.json`` of a folder that was planned without code; None where it is something else.

    Raises:
        UsageError: it was changed.
    """
    is_plan = (folder / PLAN).is_file() and not (folder / MANIFEST).exists()
    return read_document(folder / PLAN, PLAN) if is_plan else None


def write_project(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Put ``files`` in place of whatever project ``folder`` held before; a failure leaves the old one untouched."""
    check_destination(folder)
    with _translate_errors(folder, _ANOTHER_FOLDER):
        _write_files(folder.resolve(), files)


def _write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name[:40]}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "new"
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        try:
            fresh.rename(folder)
        except OSError:
            if (Path(scratch) / "old").exists():
                (Path(scratch) / "old").rename(folder)
            raise


def read_file(path: Path) -> bytes:
    """A file of a project.

    Raises:
        UsageError: it is not there.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{shorten(str(path))} cannot be read: {error.strerror}", "Compile the project again.") from error


def read_manifest(folder: Path) -> Contents:
    """The parsed ``deploy.json`` of a project.

    Raises:
        UsageError: ``folder`` is no project of ours, was written by another version, or lost a part.
    """
    plan = read_plan(folder)
    if plan is not None:
        raise UsageError(
            f"{folder} is a plan for target {shorten(str(plan.get('target')))}, for which no code is made",
            "deeploy report shows it; compile for another target to run the model.",
        )
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} is not a project written by {GENERATOR} (no {MANIFEST})", _FIRST)
    manifest, text = load_document(folder / MANIFEST, MANIFEST)
    if manifest.get("generator") != GENERATOR:
        raise UsageError(f"{shorten(str(folder / MANIFEST), 160)} was not written by {GENERATOR}", _FIRST)
    if manifest.get("schema") != SCHEMA:
        raise UsageError(
            f"{shorten(str(folder / MANIFEST), 160)} has schema {shorten(str(manifest.get('schema')), 40)}, this version reads {SCHEMA}",
            "Compile the project again.",
        )
    result = check_document(manifest, MANIFEST, str(folder / MANIFEST), text=text)
    _check_references(result, folder / MANIFEST)
    return result


def _check_references(manifest: Document, file: Path) -> None:
    """Raise UsageError where an entry names a chip, a memory or a path that the project does not have."""
    chips = manifest.get("chips", [])
    inner = range(len(chips))
    numbers = [("code", chip) for chip in manifest.get("code", inner)] + [("chips", entry.get("chip")) for entry in chips]
    numbers += [("messages", message[end]) for message in manifest.get("messages", []) for end in ("from", "to")]
    numbers += [("inputs", chip) for port in manifest.get("inputs", []) for chip in port.get("chips", [])]
    numbers += [("outputs", port["chip"]) for port in manifest.get("outputs", []) if "chip" in port]
    problems = [f"{where} names chip {number}" for where, number in numbers if chips and number not in inner]
    problems += ["code does not list every chip once"] * (bool(chips) and len(manifest["code"]) != len(chips))
    problems += [f"{where} of chip {chip} names {shorten(name, 40)}" for where, chip, name in _unknown_ports(manifest)] * (not problems)
    for entry in manifest.get("networks") or chips or [manifest]:
        machine = entry["machine"] or {"paths": {}}
        ends = [end for path in machine["paths"].values() for end in path.values()]
        levels = [*ends, *([machine["default_memory"]] if "default_memory" in machine else [])]
        levels += [buffer["level"] for buffer in entry["buffers"]] + [state["level"] for state in entry.get("states", [])]
        problems += [f"{entry['name']} names the memory {shorten(level, 40)}" for level in levels if level not in entry["memory"]]
        lists = [entry["traffic"], *(entry[name] for name in ("bytes", "shares", "energy", "utilisation") if entry["traffic"])]
        paths = sorted({*entry["traffic"], *entry["bytes"], *entry["utilisation"]})
        problems += [f"{entry['name']} moves bytes over {shorten(path, 40)}" for path in paths if path not in machine["paths"]]
        problems += [f"{entry['name']} needs figures of {path}" for path in paths for figures in lists if path not in figures]
    if problems:
        raise UsageError(f"{shorten(str(file), 160)}: {problems[0]}, which it does not have", KINDS[MANIFEST].remedy)


def _unknown_ports(manifest: Document) -> Iterator[tuple[str, int, str]]:
    """Inputs of chips that the whole does not have, and outputs of the whole that its chip does not have."""
    chips = manifest.get("chips", [])
    known = {port["name"] for port in manifest.get("inputs", [])}
    for chip, entry in enumerate(chips):
        yield from (("inputs", chip, port["name"]) for port in entry["inputs"] if port["name"] not in known)
    for port in manifest["outputs"] if chips else []:
        chip = port.get("chip", 0)
        if "chip" not in port or chip >= len(chips) or port["name"] not in {own["name"] for own in chips[chip]["outputs"]}:
            yield "outputs", chip, port["name"]


def select_network(manifest: Document, name: str | None = None) -> Document:
    """The entry of one network in ``deploy.json``, or of ``chipK``; without a name, the only one, or that of all chips.

    The entry of a chip has the name of the first one with the same code, under which explanations are kept.
    """
    if "chips" in manifest and name is not None:
        chips = {f"chip{k}": {**entry, "name": f"chip{manifest['code'][k]}"} for k, entry in enumerate(manifest["chips"])}
        if name not in chips:
            raise UsageError(
                f"the project holds the chips chip0 to chip{len(chips) - 1}; {name} was named", "Name one of them with --network."
            )
        return chips[name]
    entries: list[Document] = manifest.get("networks") or [manifest]
    matching = [entry for entry in entries if name in (None, entry["name"])]
    if len(matching) != 1:
        known = [str(entry["name"]) for entry in entries]
        what = f"the project holds the networks {', '.join(known)}; {shorten(name or 'none')} was named"
        raise UsageError(what, f"{suggest(name or '', known)}Name one of them with --network.")
    return matching[0]
