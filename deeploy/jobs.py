"""Many independent tasks at once: a thin layer over joblib, by which everything that is a set of such tasks is run.

Tasks run in processes of this machine, one for each core, or on the engine that ``workers`` or ``joblib.parallel_config`` names. Neither
their number nor the order in which tasks end changes what a caller gets. A task whose worker dies runs again; where others ran at that
time, one after the other from then on, so that it is known which one it is.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

from deeploy.errors import DeeployError, UsageError, shorten

MOST_RUNS = 3  # of a task whose worker dies
SLICE = 64  # tasks whose results come together, of an engine that cannot say when each of them ends
PAUSE = 0.5  # seconds between two looks whether the process that asked is still there
PATIENCE = 10  # seconds in which a scheduler answers
_DEATHS = {"TerminatedWorkerError", "RayError"}  # classes of what an engine raises when a worker is lost
_SCHEMES: Mapping[str, str] = {"tcp": "dask", "tls": "dask", "ucx": "dask", "ray": "ray"}

T = TypeVar("T")
R = TypeVar("R")


class LostError(DeeployError):
    """A task that no worker survives."""


@dataclass(frozen=True)
class _Workers:
    """How many processes are wanted (None: one for each core), and the address of the scheduler that has others."""

    jobs: int | None = None
    scheduler: str | None = None


_ALL_CORES = _Workers()
_WORKERS = ContextVar("_WORKERS", default=_ALL_CORES)


@contextlib.contextmanager
def workers(jobs: int | None = None, scheduler: str | None = None) -> Iterator[None]:
    """What runs the tasks of the block: so many processes, or the workers of a Dask or Ray scheduler.

    Args:
        jobs: processes on this machine; None: one for each core that may be used.
        scheduler: ``tcp://HOST:PORT`` of Dask, ``ray://HOST:PORT`` of Ray.

    Raises:
        UsageError: there is no such engine, or both are given.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} is no number of processes", "For example: --jobs 4")
    if scheduler is not None and (jobs is not None or scheduler.partition("://")[0] not in _SCHEMES):
        what = "--jobs with --scheduler" if jobs is not None else f"--scheduler {shorten(scheduler)} is no address"
        raise UsageError(what, "Give one of them; of Dask, for example: --scheduler tcp://localhost:8786")
    token = _WORKERS.set(_Workers(jobs, scheduler))
    try:
        yield
    finally:
        _WORKERS.reset(token)


def count_cores() -> int:
    """The cores that may be used: those that the system gives to this process, or as few as ``OMP_NUM_THREADS`` says."""
    from joblib import cpu_count

    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(given), cpu_count()) if given.isdecimal() and int(given) else int(cpu_count())


def in_order(work: Callable[[T], R], tasks: Sequence[T], **how: bool) -> Generator[R, None, None]:
    """The results of ``work`` for all tasks, in their order; arguments are those of ``run_tasks``.

    Raises:
        DeeployError: of the first task that fails.
    """
    results_by_index: dict[int, R | DeeployError] = {}
    with contextlib.closing(run_tasks(work, tasks, **how)) as results:
        for position in range(len(tasks)):
            while position not in results_by_index:
                number, result = next(results)
                results_by_index[number] = result
            result = results_by_index.pop(position)
            if isinstance(result, DeeployError):
                raise result
            yield result


def run_tasks(
    work: Callable[[T], R], tasks: Sequence[T], *, threads: bool = False, bounded: bool = True
) -> Generator[tuple[int, R | DeeployError], None, None]:
    """The position of every task and its result, or its error, in the order in which they end.

    Args:
        work: a function of a module; it and what it returns are sent between processes.
        threads: tasks only wait for programs, or cannot be sent: threads of this process run them.
        bounded: a process of this machine has its share of the memory; not where it starts programs with sanitizers, which reserve more.

    Raises:
        UsageError: the scheduler does not answer, or what speaks to it is not installed.
    """
    if _is_alone(len(tasks)):
        yield from (_attempt_task(work, position, task, None) for position, task in enumerate(tasks))
        return
    with _choose_engine(threads, bounded) as (count, prepare):
        waiting, lost = dict(enumerate(tasks)), Counter[int]()
        while waiting:
            alone = [position for position in waiting if lost[position]][:1]
            batch, started = [(p, waiting[p]) for p in alone or waiting], set[int]()
            try:
                for position, result in _run_batch(work, batch, started, count, prepare):
                    started.remove(position)
                    if isinstance(result, LostError):
                        lost[position] += 1
                    else:
                        del waiting[position]
                        yield position, result
            except Exception as error:
                if not _DEATHS & {kind.__name__ for kind in type(error).__mro__}:
                    raise
                lost.update(started)
            for position in [p for p in waiting if lost[p] == MOST_RUNS]:
                del waiting[position]
                remedy = "Use fewer --jobs, or workers with more memory; report it if neither helps."
                yield position, LostError(f"the worker died in all of {MOST_RUNS} runs, killed or out of memory", remedy)


def _is_alone(count: int) -> bool:
    """Whether this process runs so many tasks itself, one after the other."""
    wanted = _WORKERS.get()
    return wanted.scheduler is None and (count < 2 or (wanted.jobs or count_cores()) == 1)


def _run_batch(work: Callable[[T], R], tasks: Sequence[tuple[int, T]], started: set[int], count: int, prepare: Any) -> Iterator[Any]:
    """The results of some tasks; ``started`` gets those that were handed out."""
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    def hand_out(some: Sequence[tuple[int, T]]) -> Iterator[Any]:
        for position, task in some:
            started.add(position)
            yield delayed(_attempt_task)(work, position, task, prepare)

    if not get_active_backend()[0].supports_return_generator:  # Ray
        for begin in range(0, len(tasks), SLICE):
            yield from Parallel(count, batch_size=1)(hand_out(tasks[begin : begin + SLICE]))
        return
    with _without_interrupts():
        results = Parallel(count, batch_size=1, return_as="generator_unordered")(hand_out(tasks))
    with warnings.catch_warnings(), contextlib.closing(results):
        warnings.simplefilter("ignore")  # that some results are not asked for
        yield from results


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that are started here do not hear of Ctrl-C, which a terminal sends to all: who started them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _attempt_task(work: Callable[[T], R], position: int, task: T, prepare: Callable[[], None] | None) -> tuple[int, R | DeeployError]:
    """One run of a task, where it runs; what it finds out that it cannot do is its result."""
    try:
        if prepare is not None:
            prepare()
        return position, work(task)
    except DeeployError as error:
        return position, error
    except MemoryError:
        return position, UsageError("it takes more memory than a worker may have", "Use fewer --jobs, or a machine with more memory.")


@dataclass(frozen=True)
class _Process:
    """What a process of this machine does before a task: it takes all tasks inside of it alone, in so many bytes of memory, if not 0.

    It ends with the process that asked, ``parent``, however that ends.
    """

    memory: int
    parent: int

    def __call__(self) -> None:
        if _WORKERS.get() is _ALL_CORES:  # the first task
            Thread(target=_follow_parent, args=(self.parent,), daemon=True).start()
        _begin_worker()
        if self.memory:
            with contextlib.suppress(ValueError, OSError):  # not every system limits the memory of a process
                resource.setrlimit(resource.RLIMIT_DATA, (self.memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _begin_worker() -> None:
    """A worker takes all tasks inside of a task itself, and is in all else as the command whose part it is (``deeploy.cli.main``)."""
    _WORKERS.set(_Workers(1))
    warnings.simplefilter("ignore")
    gc.set_threshold(200_000)


def _follow_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)


def _on_cluster() -> None:
    """What a worker of a cluster does before a task.

    Raises:
        LostError: a worker died of the task, or while the task waited there. Dask counts both as deaths of the task, runs it again,
            beside others, and gives it up after some deaths, of which joblib never hears.
    """
    _begin_worker()
    if "distributed" not in sys.modules:
        return
    from distributed import get_client, get_worker

    try:
        key = get_worker().get_current_task()
    except ValueError:  # another engine's
        return
    ask: Any = get_client().run_on_scheduler
    if ask(_count_deaths, key=key):
        raise LostError("a worker died", "")


def _count_deaths(key: str, dask_scheduler: Any) -> int:
    return int(dask_scheduler.tasks[key].suspicious)


def _allowed_failures(dask_scheduler: Any) -> int:
    return int(dask_scheduler.allowed_failures)


@contextlib.contextmanager
def _choose_engine(threads: bool, bounded: bool) -> Iterator[tuple[int, Callable[[], None] | None]]:
    """The engine of all that joblib does in the block: how many tasks it runs at once (-1: it knows), and what each worker does first."""
    from joblib import parallel_config
    from joblib.parallel import get_active_backend

    wanted, (active, active_jobs) = _WORKERS.get(), get_active_backend()
    count = wanted.jobs or count_cores()
    if threads:
        with parallel_config("threading"):
            yield count, None
    elif wanted.scheduler is not None:
        with _connect_cluster(wanted.scheduler):
            yield -1, _on_cluster
    elif type(active).__name__ != "LokyBackend":  # the caller's own choice
        yield active_jobs, _on_cluster
    else:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // count if bounded else 0
        with parallel_config("loky", inner_max_num_threads=max(1, count_cores() // count)):
            yield count, _Process(memory, os.getpid())


def _dask_engine(client: Any) -> Any:
    """The engine of a Dask cluster. Of one worker as well: joblib would run its tasks in this process."""
    from joblib._dask import DaskDistributedBackend

    class Dask(DaskDistributedBackend):  # type: ignore[misc]
        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, int(super().effective_n_jobs(n_jobs)))

    return Dask(client=client)


@contextlib.contextmanager
def _connect_cluster(address: str) -> Iterator[None]:
    """A connection to a scheduler, as the engine of joblib."""
    from joblib import parallel_config

    engine = _SCHEMES[address.partition("://")[0]]
    try:
        library: Any = import_module(name := "ray" if engine == "ray" else "distributed")
    except ImportError as error:
        raise UsageError(f"--scheduler {shorten(address)}: {name} is not installed", f"pip install {name}") from error
    for noisy in ("distributed", "tornado"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # a lost worker is no news
    with contextlib.ExitStack() as stack:
        try:
            if engine == "ray":
                stack.enter_context(library.init(address, log_to_driver=False))
                import_module("ray.util.joblib").register_ray()
                stack.enter_context(parallel_config("ray"))
            else:
                client = stack.enter_context(library.Client(address, timeout=PATIENCE, set_as_default=False))
                client.wait_for_workers(1, timeout=PATIENCE)
                gives_up = not client.run_on_scheduler(_allowed_failures)
                stack.enter_context(parallel_config(_dask_engine(client)))
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"no scheduler with workers answers at {shorten(address)}", "docs/sweep.md says how to start one.") from error
        if engine == "dask" and gives_up:
            what = f"the scheduler at {shorten(address)} gives tasks up with the first worker that dies"
            raise UsageError(what, "Start it without DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0.")
        yield
