"""Tasks in processes of this machine and on a Dask cluster: the same results, and what becomes of those whose workers die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import pytest

from deeploy.errors import DeeployError, UsageError
from deeploy.jobs import MOST_RUNS, LostError, count_cores, in_order, run_tasks, workers
from tests import jobtasks

ROOT = Path(__file__).resolve().parents[1]
Start = Callable[[], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Dask scheduler with two workers, all processes of their own."""
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    pids = set[int]()
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as found:
        pids.update(worker.process.pid for worker in found.workers.values() if worker.process is not None)
        assert len(pids) == 2
        yield str(found.scheduler_address)


@pytest.fixture(params=["processes", "dask"])
def engine(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"jobs": 2} if request.param == "processes" else {"scheduler": request.getfixturevalue("cluster")}


def test_results_come_in_order_or_as_they_are_ready(engine: dict[str, object]) -> None:
    with workers(**engine):  # type: ignore[arg-type]
        assert list(in_order(jobtasks.square, range(9))) == [number * number for number in range(9)]
        assert dict(run_tasks(jobtasks.square, range(9))) == {number: number * number for number in range(9)}


def test_the_first_error_is_raised(engine: dict[str, object]) -> None:
    with workers(**engine), pytest.raises(UsageError, match="3 is odd"):  # type: ignore[arg-type]
        list(in_order(jobtasks.refuse_odd, [2, 3, 4, 5]))
    with workers(**engine):  # type: ignore[arg-type]
        found = dict(run_tasks(jobtasks.refuse_odd, [2, 3, 4, 5]))
    assert [found[0], found[2]] == [2, 4]
    assert isinstance(found[1], UsageError) and isinstance(found[3], UsageError)


@pytest.mark.parametrize("deaths", [MOST_RUNS - 1, MOST_RUNS])
def test_a_task_whose_worker_dies_runs_again_but_twice_at_most(engine: dict[str, object], deaths: int, tmp_path: Path) -> None:
    tasks = [(tmp_path, number, deaths if number == 3 else 0) for number in range(7)]
    with workers(**engine):  # type: ignore[arg-type]
        found = dict(run_tasks(jobtasks.die, tasks))
    lost = found.pop(3) if deaths == MOST_RUNS else None
    assert found == {number: number for number in range(7) if lost is None or number != 3}
    assert (lost is None) == (deaths < MOST_RUNS)
    assert lost is None or (isinstance(lost, LostError) and f"all of {MOST_RUNS} runs" in lost.what)
    assert len(list(tmp_path.glob("3.*"))) == MOST_RUNS


def test_a_worker_has_its_share_of_the_memory() -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with workers(2):
        found = dict(run_tasks(jobtasks.fill, [1 << 20, memory]))
    error = found[1]
    assert found[0] == 1 << 20
    assert isinstance(error, DeeployError) and "more memory than a worker may have" in error.what


def test_cores_are_as_many_as_the_environment_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    for text, wanted in {"": 8, "3": 3, "3,2": 3, "64": 8, "0": 8, "many": 8}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert count_cores() == wanted
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with workers(2):
        found = list(in_order(jobtasks.process, range(4)))
    assert {threads for _, threads in found} == {"2"}
    assert os.getpid() not in {pid for pid, _ in found}


def test_one_task_or_one_job_stays_in_the_process() -> None:
    with workers(2):
        assert [pid for pid, _ in in_order(jobtasks.process, [0])] == [os.getpid()]
    with workers(1):
        assert {pid for pid, _ in in_order(jobtasks.process, [0, 1])} == {os.getpid()}


def test_an_engine_of_the_caller_is_taken() -> None:
    with joblib.parallel_config("threading", n_jobs=2):
        found = list(in_order(jobtasks.process, [0, 1]))
    assert {pid for pid, _ in found} == {os.getpid()}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": 0}, "--jobs 0 is no number of processes"),
        ({"scheduler": "localhost:8786"}, "--scheduler localhost:8786 is no address"),
        ({"scheduler": "tcp://localhost:8786", "jobs": 2}, "--jobs with --scheduler"),
    ],
)
def test_workers_that_cannot_be(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message), workers(**given):  # type: ignore[arg-type]
        pass


def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    monkeypatch.setattr("deeploy.jobs.PATIENCE", 0.2)
    with workers(scheduler="tcp://127.0.0.1:9"), pytest.raises(UsageError, match="no scheduler with workers answers"):
        list(run_tasks(jobtasks.square, [1, 2]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_asked(number: signal.Signals) -> None:
    """Ctrl-C reaches it and them, of which it alone speaks; what it started is gone when it is, however it ends."""
    code = f"import signal, sys; sys.path.insert(0, {str(ROOT)!r})\n" + (
        "from deeploy.jobs import in_order, workers\nfrom tests import jobtasks\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with workers(2):\n    for pid, _ in in_order(jobtasks.process, range(1000)):\n        print(pid, flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(4)}
        os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
        _, errors = process.communicate(timeout=60)
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert errors.count("KeyboardInterrupt") == (number == signal.SIGINT)
