"""The command that makes mutants of a model's C: what it makes, what it says of survivors, and how it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deeploy.options import Options
from tests.execution.simulation import nets
from tests.hal import mutants
from tests.hal.mutate import Mutant, code, every_mutant
from tests.hal.subject import Subject

TEXT = """
/* conv: 3 taps */
enum {
    AT_A = 0,
    AT_B = 16,
};

static void layer_body(void *argument) {
    const int32_t t = ((const struct tile *)argument)->t; /* 7 */
    const int32_t n = smaller(4, 9 - t);
    if (n <= 0) return;
    rt_fetch_run(DMA_L2_L1, IN, self->l1 + AT_A + t % 2 * 8, (rt_address)self->inputs[0], 64);
    rt_wait(DMA_L2_L1, IN);
    rt_barrier();
    rt_fork(8, layer_body, self->l1 + AT_B, 0);
    kernel(&(struct kernel){.x = x, .y = y, .n = n});
}

enum deeploy_status network_run(const void *const *sources) {
    if (count < 5) return 1;
}
"""
TABLE = 'static const struct rt_block blocks[1] = {\n    {"layer.x", LEVEL_L1, 0, 64, 0, 2},\n};\n'
NEW = {
    "wait dropped": ["(void)0;"],
    "transfer dropped": ["(void)0;"],
    "barrier dropped": ["(void)0;"],
    "team dropped": ["(void)0;"],
    "offset shifted": ["    AT_A = 16", "    AT_B = 32"],
    "other address": ["AT_B", "AT_A"],
    "begins a step late": ['{"layer.x", LEVEL_L1, 0, 64, 1, 2}'],
    "ends a step early": ['{"layer.x", LEVEL_L1, 0, 64, 0, 1}'],
    "other window": ["(1 - t % 2)"],
    "other ticket": ["rt_fetch_run(DMA_L2_L1, OUT", "rt_wait(DMA_L2_L1, OUT"],
    "comparison changed": [" < "],
    "limit exchanged": ["larger"],
    "operands swapped": ["t - 9"],
    "pointers swapped": [".x = y, .y = x"],
    "number raised": ["5", "10", "1", "3", "9", "1", "65", "9", "1"],
    "number lowered": ["3", "8", "1", "7", "63", "7"],
}


def test_every_kind_changes_what_it_says() -> None:
    sources = {"network.c": TEXT, "network_checks.h": TABLE}
    made: dict[str, list[str]] = {}
    for mutant in every_mutant(sources):
        assert mutant.sources != sources
        changed = mutant.sources[mutant.path]
        original = sources[mutant.path]
        assert changed == original[: mutant.at] + mutant.new + original[mutant.at + len(mutant.old) :]
        assert original[mutant.at :].startswith(mutant.old)
        assert mutant.again(mutant.old).sources == sources
        made.setdefault(mutant.kind, []).append(mutant.new)
    waits = {kind: made.pop(kind) for kind in ("wait earlier", "wait later")}
    assert made == NEW
    assert [re.sub(r"\s+", " ", text).strip() for text in waits["wait later"]] == ["rt_barrier(); rt_wait(DMA_L2_L1, IN);"]
    assert waits["wait earlier"][0].index("rt_wait") < waits["wait earlier"][0].index("rt_fetch_run")


def test_only_layers_are_code() -> None:
    seen = code(TEXT)
    assert len(seen) == len(TEXT) and seen.count("\n") == TEXT.count("\n")
    assert "smaller(4, 9 - t)" in seen and "rt_wait" in seen
    assert not re.search(r"taps|AT_A = |7|network_run|count < 5", seen)


def test_all_kinds_are_drawn_alike() -> None:
    every = list(every_mutant({"network.c": TEXT, "network_checks.h": TABLE}))
    kinds = {mutant.kind for mutant in every}
    assert {mutant.kind for mutant in mutants.drawn(every, len(kinds), 1)} == kinds
    assert mutants.drawn(every, 30, 3) == mutants.drawn(every, 30, 3) != mutants.drawn(every, 30, 4)
    assert sorted(m.name for m in mutants.drawn(every, None, 1)) == sorted(m.name for m in every)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Two layers with tiles and windows in two slots."""
    folder = tmp_path_factory.mktemp("mutants")
    nodes = [nets.node("MatMul", "x w", "a"), nets.node("Tanh", "a", "y")]
    options = Options(memory={"l1": 1500}, buffering="double", default_memory="L3")
    compiled = nets.compile_nodes(folder, nodes, {"x": [6, 20]}, {"y": [6, 31]}, {"w": [20, 31]}, options)
    return mutants.subject_of(compiled, folder / "project")


def replaced(subject: Subject, kind: str, old: str, new: str, nth: int = 0) -> Mutant:
    """One place of the network's C with another text."""
    path = subject.paths[0]
    text = subject.sources()[path]
    at = [match.start() for match in re.finditer(re.escape(old), text)][nth]
    return Mutant(kind, path, at, old, new, {**subject.sources(), path: text[:at] + new + text[at + len(old) :]})


@pytest.mark.slow
def test_what_is_said_of_mutants(subject: Subject) -> None:
    """Changes whose effect is known, all but the last ones at the first wait for windows.

    A stride between batches of one has no effect on a kernel, the length of a sum has one.
    """
    text = subject.sources()[subject.paths[0]]
    window = re.search(r"self->l1 \+ AT_\w+__Y\b", text)
    fetched = re.search(r"rt_fetch\w*\(DMA_L2_L1, IN, (self->l1 \+ AT_\w+)", text)
    assert window is not None and fetched is not None
    wait = "rt_wait(DMA_L2_L1, IN);"
    given = [
        replaced(subject, "wait dropped", wait, "(void)0;"),
        replaced(subject, "wait dropped", wait, "rt_wait(DMA_L2_L1, IN;"),
        replaced(subject, "comparison changed", wait, f"if (1 < 2) {wait}"),
        replaced(subject, "wait later", wait, f"rt_wait(DMA_L3_L2, 5); {wait}"),
        replaced(subject, "comparison changed", wait, f"if (self->inputs) {wait}"),
        replaced(subject, "load added", wait, f"{wait} (void)*(volatile int8_t *)({fetched[1]});"),
        replaced(subject, "load added", wait, f"(void)*(volatile int64_t *)({window[0]}); {wait}"),
        replaced(subject, "load added", wait, f"(void)*(volatile int8_t *)(self->l1 + 1400); {wait}"),
        replaced(subject, "number raised", "smaller(1, 6 - part_m)", "smaller(2, 6 - part_m)"),
        replaced(subject, "number raised", "0", "1", text.count("0", 0, text.index(".y_batch = {") + 12)),
        replaced(subject, "number raised", "20", "21", text.count("20", 0, text.index(".depth = 20"))),
    ]
    killed, compiler, same, idle, order, left, unwritten, dead, race, stride, length = mutants.judge(subject, given)
    assert killed.killed is not None and killed.by in ("host model", "outputs differ")
    assert compiler.by == "compiler"
    assert (same.killed, same.reason) == (None, "the same machine code")
    assert idle.killed is None and idle.reason is not None and idle.reason.startswith("nothing touches what moves")
    assert order.killed is None and order.reason is not None and order.reason.startswith("the same loads, stores, transfers")
    assert not left.is_explained
    assert unwritten.by == "garbage"
    assert dead.by == "address sanitizer"
    assert race.by == "host model" and race.killed is not None and "have both written" in race.killed  # with equal results
    assert stride.killed is None and stride.reason is not None and stride.reason.startswith("a number that has no effect on the kernel")
    assert length.killed is not None
    lines = mutants.summary([killed, compiler, same, idle, order, left, unwritten, dead, race])
    assert "5 of 9 killed (55.6%): " in "\n".join(lines) and "3 are equivalent, 1 are not explained" in lines
    assert [line.splitlines()[1].strip() for line in lines if "NOT" in line] == ["NOT EXPLAINED"]


@pytest.mark.slow
def test_the_command(tmp_path: Path, subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
    """One mutant of every kind, none without a reason."""
    model = subject.folder.parent / "model.onnx"
    words = [str(model), "--l1", "1500", "--buffering", "double", "--default-memory", "L3", "--count", "16", "--seed", "4"]
    assert mutants.main(words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("model.onnx for siracusa: 16 of ")
    assert ", 0 are not explained" in shown
    assert int(re.findall(r"(\d+) of 16 killed", shown)[0]) > 8


def test_a_certificate_judges_without_a_run(subject: Subject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(mutants, "subject_of", None)
    model = [str(subject.folder.parent / "model.onnx"), "--l1", "1500", "--buffering", "double", "--default-memory", "L3"]
    assert mutants.main([*model, "--by", "certificate", "--kind", "^(wait|transfer|team) dropped|pointers|ticket"]) == 0
    count, killed, by = re.findall(
        r": (\d+) of .*?(\d+) of \d+ killed \(100.0%\): (\d+) by certificate", capsys.readouterr().out, re.DOTALL
    )[0]
    assert int(count) == int(killed) == int(by) > 15


@pytest.mark.slow
def test_what_a_certificate_lets_pass_is_run(subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
    model = [str(subject.folder.parent / "model.onnx"), "--l1", "1500", "--buffering", "double", "--default-memory", "L3"]
    assert mutants.main([*model, "--by", "both", "--count", "48"]) == 0
    shown = capsys.readouterr().out
    killed, wrong = map(int, re.findall(r"the certificate kills (\d+) of the (\d+) that are wrong", shown)[0])
    assert killed == wrong > 30, shown


def test_what_cannot_be_compiled_is_said_in_two_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main([str(tmp_path / "none.onnx")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 2


def test_what_is_left_ends_with_status_1(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "subject_of", lambda *given: subject)
    monkeypatch.setattr(mutants, "judge", lambda given, chosen, *rest: [mutants.Verdict(mutant) for mutant in chosen])
    words = [str(subject.folder.parent / "model.onnx"), "--l1", "1500", "--count", "2"]
    assert mutants.main(words) == 1
