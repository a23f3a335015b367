"""Mutants of the C that the compiler emits for a model: how many are noticed, and why the others are equivalent.

    python -m tests.hal.mutants MODEL.onnx --target siracusa --count 100 --seed 1 [--l1 BYTES] [--l2 BYTES] [--default-memory L3]
                                [--buffering double] [--dim NAME=VALUE] [--context N] [--inputs IN.npz] [--kind REGEX] [--jobs N] [--all]
                                [--by model|certificate|both]

A mutant differs from the emitted C in one place (``tests.hal.mutate``). It runs on the host machine model, in every mode, on several
samples, and is killed where the model stops it, outputs differ, it does not compile or does not end; what is left runs once more with the
sanitizers. For every survivor a reason is looked for why it is equivalent (``tests.hal.equivalent``). Exit status: 0; 1 where one is left
without a reason; 2 and 3 where the model cannot be compiled.

``--by certificate`` builds and runs nothing: a mutant is killed where ``deeploy.certify`` refuses it. ``--by both`` then runs those that
it lets pass, and names those that are wrong nevertheless. There are no mutants of the table of lifetimes then: only the model reads it.
"""

from __future__ import annotations

import argparse
import queue
import random
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deeploy import api
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.certify import CertificateError, certify_network
from deeploy.driver import verify
from deeploy.errors import DeeployError
from deeploy.execution.runners.runner import split_outputs
from deeploy.execution.verification.compare import compare_output
from deeploy.options.texts import parse_dims
from tests.hal.equivalent import Equivalence
from tests.hal.mutate import Mutant, every_mutant
from tests.hal.subject import ASAN, THREADS, Flavour, Subject


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: what killed it, or why it is equivalent; neither where it is not explained."""

    mutant: Mutant
    killed: str | None = None
    reason: str | None = None

    @property
    def is_explained(self) -> bool:
        return self.killed is not None or self.reason is not None

    @property
    def by(self) -> str:
        """What killed it, in a word or two."""
        assert self.killed is not None
        heads = (
            "certificate",
            "compiler",
            "host model",
            "outputs differ",
            "address sanitizer",
            "thread sanitizer",
            "garbage",
            "it does not end",
        )
        return next((head for head in heads if self.killed.startswith(head)), "crash")


def drawn(mutants: Iterable[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """So many mutants, of all kinds equally many as long as there are any."""
    kinds: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.kind, []).append(mutant)
    generator = random.Random(seed)
    for row in kinds.values():
        generator.shuffle(row)
    rounds = max(map(len, kinds.values()), default=0)
    order = [row[index] for index in range(rounds) for row in kinds.values() if index < len(row)]
    return order[:count]


class Certificate:
    """Judges mutants of a compiled network by its certificate: nothing is built, and nothing is run."""

    def __init__(self, compiled: api.Compiled) -> None:
        (self.printed,) = compiled.printed(compiled.files())
        certify_network(self.printed)
        path = f"src/{self.printed.prefix}.c"
        self.sources = {path: str(self.printed.files[path])}

    def killed(self, sources: Mapping[str, str]) -> str | None:
        """Why it refuses these sources; None where it lets them pass."""
        try:
            certify_network(replace(self.printed, files={**self.printed.files, **sources}))
        except CertificateError as error:
            return f"certificate: {error}"
        return None

    def judge(self, mutants: Sequence[Mutant], told: Callable[[Verdict], None] = lambda verdict: None) -> list[Verdict]:
        """What it says of mutants, in their order."""
        verdicts = []
        for mutant in mutants:
            verdicts.append(Verdict(mutant, self.killed(mutant.sources)))
            told(verdicts[-1])
        return verdicts


def judge(
    subject: Subject,
    mutants: Sequence[Mutant],
    jobs: int = 1,
    told: Callable[[Verdict], None] = lambda verdict: None,
    certificate: Certificate | None = None,
) -> list[Verdict]:
    """What becomes of every mutant of a project, in their order; with a certificate, only those that it lets pass are run."""
    assert subject.outputs is not None  # built once, before it is copied
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(mutants)):
        waiting.put(index)
    found: dict[int, Verdict] = {}
    failures: list[BaseException] = []

    def work(folder: Path) -> None:
        own = subject.copied(folder)
        equivalence = Equivalence(own)
        try:
            while not failures:
                index = waiting.get_nowait()
                refused = None if certificate is None else certificate.killed(mutants[index].sources)
                found[index] = Verdict(mutants[index], refused) if refused else _judged(own, equivalence, mutants[index])
                if certificate is not None and not refused and found[index].killed and equivalence.is_right_elsewhere(mutants[index]):
                    found[index] = Verdict(mutants[index], None, f"right, wherever memory is not watched: {found[index].killed}")
                told(found[index])
        except queue.Empty:
            return
        except BaseException as error:
            failures.append(error)

    with tempfile.TemporaryDirectory(prefix="deeploy-mutants-") as scratch:
        threads = [threading.Thread(target=work, args=(Path(scratch) / str(job),)) for job in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return [found[index] for index in range(len(mutants))]


def _judged(subject: Subject, equivalence: Equivalence, mutant: Mutant) -> Verdict:
    """Sanitizers see loads of what is not there, and cores that touch the same bytes; they are slow, so that they come last."""
    killed = subject.killed(mutant.sources)
    if killed is not None:
        return Verdict(mutant, killed)
    reason = equivalence.same_code(mutant)
    if reason is not None:
        return Verdict(mutant, None, reason)
    killed = _sanitized(subject, mutant, "address sanitizer", ASAN)
    killed = killed or equivalence.moves_garbage(mutant)
    reason = equivalence.reason(mutant) if killed is None else None
    if killed is None and reason is None and subject.is_managed:
        killed = _sanitized(subject, mutant, "thread sanitizer", THREADS)
    return Verdict(mutant, killed, reason)


def _sanitized(subject: Subject, mutant: Mutant, name: str, flavour: Flavour) -> str | None:
    found = subject.killed(mutant.sources, flavour)
    return None if found is None else f"{name}: {found}"


def subject_of(compiled: api.Compiled, folder: Path, inputs: Path | None = None) -> Subject:
    """The written project of a compiled model, after a look at whether it is right.

    Raises:
        AssertionError: its C and the interpreter differ.
    """
    compiled.write(folder)
    entry = select_network(project.read_manifest(folder))
    samples = verify._load_samples(inputs, entry)[0] if inputs is not None else None
    subject = Subject.of(folder, samples)
    outputs = split_outputs(subject.outputs, entry["outputs"], len(subject.samples))
    expected = compiled.references([list(sample) for sample in subject.samples], "context" in entry)
    for index, port in enumerate(verify.interpreted_outputs(compiled.network, entry)):
        for sample, arrays in enumerate(expected):
            comparison = compare_output(port, outputs[index][sample], arrays[index])
            assert comparison.passed, f"the C is not right as it is: {comparison}"
    return subject


def summary(verdicts: Sequence[Verdict], is_certified: bool = False) -> list[str]:
    """The share that was killed, by kind and by what killed them; then those that a certificate lets pass, and the survivors."""
    kinds = list(dict.fromkeys(verdict.mutant.kind for verdict in verdicts))
    lines = ["| kind | mutants | killed | equivalent | not explained |", "|---|---|---|---|---|"]
    for kind in kinds:
        own = [verdict for verdict in verdicts if verdict.mutant.kind == kind]
        lines.append("| " + " | ".join([kind, *map(str, _counts(own))]) + " |")
    count, killed, equivalent, left = _counts(verdicts)
    by = Counter(verdict.by for verdict in verdicts if verdict.killed is not None)
    lines += ["", f"{killed} of {count} killed ({killed / max(count, 1):.1%}): {', '.join(f'{n} by {who}' for who, n in by.most_common())}"]
    lines.append(f"{equivalent} are equivalent, {left} are not explained")
    survivors = [verdict for verdict in verdicts if verdict.killed is None]
    if is_certified:
        missed = [verdict for verdict in verdicts if verdict.killed is not None and verdict.by != "certificate"]
        share = (killed - len(missed)) / max(killed, 1)
        lines.append(f"the certificate kills {killed - len(missed)} of the {killed} that are wrong ({share:.1%})")
        lines += [f"  {verdict.mutant.name}\n    MISSED by the certificate: {verdict.killed}" for verdict in missed]
    return lines + [f"  {verdict.mutant.name}\n    {verdict.reason or 'NOT EXPLAINED'}" for verdict in survivors]


def _counts(verdicts: Sequence[Verdict]) -> tuple[int, int, int, int]:
    killed = sum(verdict.killed is not None for verdict in verdicts)
    left = sum(not verdict.is_explained for verdict in verdicts)
    return len(verdicts), killed, len(verdicts) - killed - left, left


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hal.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--target", "-t", default="siracusa")
    parser.add_argument("--count", type=int, default=100, help="mutants, of all kinds equally many")
    parser.add_argument("--all", action="store_true", help="every mutant there is")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help="only kinds that match this regular expression")
    parser.add_argument("--inputs", type=Path, help="npz of samples; random and extreme ones by default")
    parser.add_argument("--l1", type=int)
    parser.add_argument("--l2", type=int)
    parser.add_argument("--default-memory")
    parser.add_argument("--dim", action="append", metavar="NAME=VALUE")
    parser.add_argument("--context", type=int)
    parser.add_argument("--buffering", choices=("auto", "single", "double"), default="auto")
    parser.add_argument("--jobs", "-j", type=int, default=1)
    parser.add_argument(
        "--by", choices=("model", "certificate", "both"), default="model", help="what judges: a run, a certificate, or both"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    given = _arguments(words)
    capacities = {name: size for name, size in (("l1", given.l1), ("l2", given.l2)) if size is not None}
    options: dict[str, Any] = {"memory": capacities, "buffering": given.buffering}
    options |= {"default_memory": given.default_memory} if given.default_memory is not None else {}
    with tempfile.TemporaryDirectory(prefix="deeploy-mutants-") as scratch:
        try:
            sizes = {"dims": parse_dims(given.dim), "context": given.context}
            compiled = api.compile(given.model, given.target, inputs=given.inputs, **options, **sizes)
            certificate = None if given.by == "model" else Certificate(compiled)
            subject = None if given.by == "certificate" else subject_of(compiled, Path(scratch) / "project", given.inputs)
        except DeeployError as error:
            print(error, file=sys.stderr)
            return error.exit_status
        sources = {} if certificate is None else certificate.sources
        sources = sources if subject is None else subject.sources()
        every = [mutant for mutant in every_mutant(sources) if re.search(given.kind, mutant.kind)]
        if certificate is not None:
            every = [mutant for mutant in every if not mutant.path.endswith("_checks.h")]
        chosen = drawn(every, None if given.all else given.count, given.seed)
        print(f"{given.model.name} for {given.target}: {len(chosen)} of {len(every)} mutants, seed {given.seed}", flush=True)
        told = _progress(len(chosen))
        if subject is not None:
            verdicts = judge(subject, chosen, given.jobs, told, certificate)
        else:
            assert certificate is not None
            verdicts = certificate.judge(chosen, told)
    print("\n".join(summary(verdicts, given.by == "both")))
    return int(not all(verdict.is_explained for verdict in verdicts))


def _progress(count: int) -> Callable[[Verdict], None]:
    """Counts on a terminal."""
    done = 0

    def told(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{done} of {count}", end="" if done < count else "\n", file=sys.stderr, flush=True)

    return told


if __name__ == "__main__":
    sys.exit(main())
