"""What every test may need: the folder of real networks, and small models made on the spot."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.samples"]

# The same examples in every run, so that a commit passes or fails whoever tests it. ``make test-full`` draws others every time.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# Tests run beside each other: what they start takes no further cores unless it is told to.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")

# Kernels compiled for tests are more than a user's cache may hold, and are not to push out what it does.
os.environ.setdefault("DEEPLOY_CACHE", str(Path.home() / ".cache" / "deeploy-tests"))
os.environ.setdefault("DEEPLOY_CACHE_BYTES", str(2 * 10**9))

# As in the command itself (``deeploy.cli.main``): a compilation makes little that is garbage, and looking for it takes a tenth of the time.
gc.set_threshold(200_000)

ROOT = Path(__file__).resolve().parents[1]
SHARED_MODELS = ROOT.parent / "shared" / "models"


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder ``shared/models`` beside the repository; tests that ask for it skip where it is absent."""
    if not SHARED_MODELS.is_dir():
        pytest.skip(f"{SHARED_MODELS} is absent: real networks are not part of the repository")
    return SHARED_MODELS
