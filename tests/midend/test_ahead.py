"""Fetches that begin earlier than the call before: no earlier than they have to, in turn, and only where there is room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deeploy.api import import_model
from deeploy.backend import host_model
from deeploy.midend.ahead import set_out
from deeploy.midend.candidates import Candidate
from deeploy.midend.choose import Choice, Home, Problem
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.tiling import Tiling
