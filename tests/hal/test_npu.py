"""N-EUREKA in the host machine model: right in every mode, and what breaks the rules of jobs is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from targets.siracusa.npu import EngineLayer, Mode
from tests.targets.siracusa.neureka_jobs import Case, build_host, case, run_host, sweep

MODES = ("early", "late", "random")
VIOLATION = 70
ASAN = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def ordinary() -> list[Case]:
    return [case(EngineLayer(Mode.POINTWISE, "s8", "s8", shift=12), 11, 9, 40, 40)]


@pytest.mark.parametrize("flags", [(), ASAN], ids=["plain", "asan"])
def test_it_computes_what_numpy_does(tmp_path: Path, flags: tuple[str, ...]) -> None:
    application = build_host(tmp_path, flags)
    cases = sweep()
    expected = [made.expected() for made in cases]
    for mode in MODES:
        assert run_host(application, cases, "--mode", mode) == (0, "", expected)


@pytest.mark.slow
def test_jobs_queue_up(tmp_path: Path) -> None:
    application = build_host(tmp_path, ASAN)
    expected = [made.expected() for made in ordinary()]
    for mode in MODES:
        for seed in range(4):
            assert run_host(application, ordinary(), "--mode", mode, "--seed", str(seed), parts=5) == (0, "", expected)


def test_rows_of_a_product_are_images_of_six_pixels_a_row(tmp_path: Path) -> None:
    application = build_host(tmp_path, ASAN)
    for rows in (1, 5, 6, 7, 12, 35, 36, 64):
        made = case(EngineLayer(Mode.POINTWISE, "s8", "s8", shift=12), 1, rows, 40, 33)
        assert run_host(application, [made], "--counters", "counters.json", parts=0) == (0, "", [made.expected()])
        assert f'"jobs": {(rows >= 6) + (rows % 6 > 0)},' in (tmp_path / "counters.json").read_text()


def test_jobs_are_counted(tmp_path: Path) -> None:
    application = build_host(tmp_path)
    run_host(application, ordinary(), "--counters", "counters.json", parts=4)
    assert '"jobs": 4' in (tmp_path / "counters.json").read_text()


WAIT = "        for (int32_t part = 0; part < jobs; part++) rt_job_wait(0);"
LEFT_OUT = (WAIT, "        (void)jobs;")
ONE_TOO_FEW = ("jobs; part++) rt_job_wait(0);", "jobs - 1; part++) rt_job_wait(0);")
STORE = "    move(DMA, (rt_address)call.y, at(Y), (uint32_t)h.bytes[Y]);\n"
FETCH = "move(DMA, at(i), (rt_address)(call.input + from), (uint32_t)h.bytes[i]);"


def before_wait(line: str) -> tuple[str, str]:
    return WAIT, f"        {line}\n{WAIT}"


HAZARDS = {
    "the wait is left out": ([LEFT_OUT], "share no byte, unless all only read it"),
    "one wait too few": ([ONE_TOO_FEW], "share no byte, unless all only read it"),
    "blocks die while a job uses them": ([LEFT_OUT, (STORE, "")], "Blocks live until the jobs that use them were waited for"),
    "a core writes x": ([before_wait("*(char *)(at(X) + 5) ^= 1;")], "nobody writes what a job reads"),
    "a core writes the weights": ([before_wait("*(char *)at(W) ^= 1;")], "nobody writes what a job reads"),
    "a core writes y": ([before_wait("*(char *)(at(Y) + 7) ^= 1;")], "nobody touches what a job writes"),
    "y is sent too early": ([before_wait("move(DMA, (rt_address)call.y, at(Y), 4);")], "share no byte, unless all only read it"),
    "x is fetched too early": ([before_wait("move(DMA, at(X) + 9, (rt_address)call.input, 1);")], "share no byte, unless all only read it"),
    "two jobs write the same": ([("tile.y += (rt_address)(first * tile.y_row);", "")], "share no byte"),
    "a job writes what it reads": ([(".y = at(Y),", ".y = at(X),")], "share no byte"),
    "x begins before its block": ([(".x = at(X),", ".x = at(X) - 8,")], "Transfers read and write living blocks"),
    "y ends behind its block": ([(".y = at(Y),", ".y = at(Y) + 4,")], "Transfers stay within one block"),
    "scales of 16 bits are read as 32": ([("{h->config,", "{h->config + (1 << 12),")], "Transfers stay within one block"),
    "x lies in L2": ([(".x = at(X),", ".x = (rt_address)call.input,")], "reaches the levels that rt_machine names"),
    "weights die too early": ([('{"weights", L1, 0, 0, 0, 2}', '{"weights", L1, 0, 0, 0, 0}')], "Lifetimes cover the steps"),
    "nobody has written x": ([(FETCH, f"if (i != X) {FETCH}")], "was written in this inference"),
    "it does not exist": ([("enum { ENGINE };", "enum { ENGINE = 1 };")], "numbered as rt_machine lists them"),
    "the model does not know it": ([('{"neureka", 0', '{"eureka", 0')], "knows the accelerator neureka"),
    "there are no channels": ([(".channels_in = h->channels_in,", ".channels_in = 0,")], "Registers of N-EUREKA"),
    "an unknown bit of the configuration": ([("{h->config,", "{h->config | 8,")], "Registers of N-EUREKA"),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_hazards_are_stopped_in_every_mode(tmp_path: Path, name: str) -> None:
    changes, rule = HAZARDS[name]
    made = case(EngineLayer(Mode.POINTWISE, "s8", "s8", shift=12, scale_bits=16), 11, 9, 40, 40)
    application = build_host(tmp_path, (), changes)
    for mode in MODES:
        status, message, _ = run_host(application, [made], "--mode", mode, parts=2)
        assert status == VIOLATION and rule in message, message


def test_what_a_job_writes_is_garbage_until_it_is_complete(tmp_path: Path) -> None:
    peek = f"        char seen = *(char *)(at(Y) + 11);\n{WAIT}\n        *(char *)(at(Y) + 11) = seen;"
    application = build_host(tmp_path, (), [(WAIT, peek)])
    made = ordinary()
    assert run_host(application, made, "--mode", "early")[2] == [made[0].expected()]
    status, message, ys = run_host(application, made, "--mode", "late")
    assert (status, message) == (0, "") and ys != [made[0].expected()]
    status, message, _ = run_host(build_host(tmp_path, ASAN, [(WAIT, peek)]), made, "--mode", "late")
    assert status != 0 and "none that a transfer is on its way to" in message


def test_sums_of_more_than_32_bits_are_stopped(tmp_path: Path) -> None:
    made = case(EngineLayer(Mode.POINTWISE, "u8", "u8", shift=12, scale_bits=32), 2, 2, 40, 40)
    made.scale[:] = 1 << 24
    status, message, _ = run_host(build_host(tmp_path), [made])
    assert status == VIOLATION and "scaled or not, have 32 bits" in message
