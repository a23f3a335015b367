"""How a target is found: by name, by path, or through the entry points of other packages; and that it is usable."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from deeploy.errors import DeeployError, Stopped, TargetError, UsageError, shorten, suggest
from deeploy.ir.target import API_VERSION, Target
from deeploy.resources import resource
from deeploy.target._validate import problems

_GROUP = "deeploy.targets"
_SOUND: list[tuple[Target, Path]] = []  # targets in which nothing was found, with their folders; each is looked at once in a process


def names() -> list[str]:
    """Names of every target that can be found without a path.

    >>> "generic" in names()
    True
    """
    return sorted({*_builtin_targets(), *(point.name for point in _entry_points())})


def load(target: str | Path) -> Target:
    """Find a target by name or by the path of its folder.

    Raises:
        UsageError: no such target.
        TargetError: its folder does not define a usable ``TARGET``, or two targets have the name.

    >>> load("generic").memories[0].name
    'arena'
    """
    return _find_target(target)[0]


def origin(target: str | Path) -> Path:
    """The folder of the Python module that defines a target.

    >>> (origin("generic") / "target.py").is_file()
    True
    """
    return _find_target(target)[1]


def place_of(target: Target) -> Path | None:
    """The folder of the target that one was made from, where it still has the same kernels; None where there is none."""
    names = [kernel.name for kernel in target.kernels]
    known = ((other, folder) for other, folder in _SOUND if (other.name, other.kernel_folders) == (target.name, target.kernel_folders))
    return next((folder for other, folder in known if [kernel.name for kernel in other.kernels] == names), None)


def _builtin_targets() -> dict[str, Path]:
    return {folder.name: folder for folder in resource("targets").iterdir() if (folder / "target.py").is_file()}


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    """The entry points of all packages; one that is found twice in the same distribution counts once."""
    return list({(p.name, p.value, _package_owner(p)): p for p in importlib.metadata.entry_points(group=_GROUP)}.values())


def _package_owner(point: importlib.metadata.EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist is not None else "another package"


def _find_target(target: str | Path) -> tuple[Target, Path]:
    text = str(target)
    points = [point for point in _entry_points() if point.name == text]
    builtin = _builtin_targets().get(text)
    claims = [*([str(builtin / "target.py")] if builtin else []), *(f"{point.value} of {_package_owner(point)}" for point in points)]
    if len(claims) > 1:
        raise TargetError(
            f"{len(claims)} targets have the name {text}: {', '.join(claims)}",
            "Uninstall one of the packages, or give the folder of a target in place of its name.",
        )
    if builtin is not None:
        return _from_folder(builtin)
    if Path(text).is_dir():
        return _from_folder(Path(text).resolve())
    if points:
        return _from_point(points[0])
    raise _unknown_target(text)


def _unknown_target(text: str) -> UsageError:
    """The error for a name that no target has: a chip or a board that a target serves, or a name that is nearly that of one."""
    asked, known = _bare_letters(text), names()
    near = [name for name in known if _bare_letters(name) == asked]
    served = {} if near else _served_targets()
    if chip := max((chip for chip in served if asked.startswith(chip)), key=len, default=""):
        target = served[chip]
        return UsageError(
            f"there is no target {shorten(text)}; the target for it is {target.name}", f"Use {target.name}: {target.summary}."
        )
    told = f"Did you mean {near[0]}? " if near else suggest(text, known)
    listed = f"{told}Name one of {', '.join(known)}, or the folder of a target (it holds a target.py)."
    return UsageError(f"there is no target {shorten(text)}", listed)


@cache
def _served_targets() -> dict[str, Target]:
    """The targets that come with the compiler, by the chips and boards that they serve."""
    return {
        _bare_letters(chip): target
        for folder in _builtin_targets().values()
        for target in [_from_folder(folder)[0]]
        for chip in target.serves
    }


def _bare_letters(name: str) -> str:
    """A name as people remember it: without case, hyphens and the like."""
    return "".join(filter(str.isalnum, name.lower()))


def _from_folder(folder: Path) -> tuple[Target, Path]:
    if not (folder / "target.py").is_file():
        raise TargetError(f"{folder} holds no target.py", "Give the folder of a target; its target.py defines TARGET.")
    return _check_loaded(getattr(_import_package(folder), "TARGET", None), str(folder / "target.py"), folder), folder


def _from_point(point: importlib.metadata.EntryPoint) -> tuple[Target, Path]:
    what = f"the entry point {point.name} = {point.value} of {_package_owner(point)}"
    try:
        target = point.load()
    except BaseException as error:  # as in _package
        if isinstance(error, DeeployError | KeyboardInterrupt | Stopped):
            raise
        where = _raised_at(error, None)
        raise TargetError(
            f"{what} cannot be loaded: {where}{type(error).__name__}: {shorten(str(error), 200)}",
            "Correct or uninstall that package; --debug shows where it fails.",
        ) from error
    module = sys.modules[point.module]
    folder = Path(module.__file__ or ".").resolve().parent
    return _check_loaded(target, what, folder), folder


def _import_package(folder: Path) -> ModuleType:
    """Import ``folder`` as a package, so that its modules can import each other relatively, and return its target.py."""
    package = f"deeploy_target_{folder.name}_{abs(hash(str(folder))):x}"
    if f"{package}.target" not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(folder)]
        sys.modules[package] = parent
        spec = importlib.util.spec_from_file_location(f"{package}.target", folder / "target.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"{package}.target"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:  # whatever a target's own code does, even SystemExit, is the target's mistake
            del sys.modules[f"{package}.target"]
            if isinstance(error, DeeployError | KeyboardInterrupt | Stopped):
                raise
            raise TargetError(
                f"{folder / 'target.py'} cannot be imported: {_raised_at(error, folder)}{type(error).__name__}: {shorten(str(error), 200)}",
                "Correct the target; --debug shows where it fails.",
            ) from error
    return sys.modules[f"{package}.target"]


def _raised_at(error: BaseException, folder: Path | None) -> str:
    """File and line of an error, as ``FILE:LINE: ``: the innermost one in ``folder``, or of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_file()]
    own = [frame for frame in frames if folder is None or Path(frame[0]).is_relative_to(folder)]
    return f"{own[-1][0]}:{own[-1][1]}: " if own else ""


def _check_loaded(target: object, what: str, folder: Path) -> Target:
    if not isinstance(target, Target):
        raise TargetError(f"{what} defines no TARGET of type deeploy.target.Target", "Assign one to the name TARGET.")
    if target.api != API_VERSION:
        raise TargetError(
            f"target {target.name} ({what}) was written for version {target.api} of the target interface, this compiler has {API_VERSION}",
            "Install the compiler it was written for, or move the target over (docs/moving-targets.md).",
        )
    if any(target is other and folder == place for other, place in _SOUND):
        return target
    faults = problems(target, folder)
    if faults:
        more = f" (and {len(faults) - 1} more: deeploy target check {folder})" if len(faults) > 1 else ""
        raise TargetError(f"{faults[0].where or what}: {faults[0].what}{more}", faults[0].remedy)
    _SOUND.append((target, folder))
    return target
