"""Edge TPUs, for planning only: what pipelines of them hold and how long they take; kernels are the generic ones' loop nests."""

from dataclasses import replace
from pathlib import Path

from deeploy.target import Memory, load, load_device

DEVICE = load_device(Path(__file__).parent / "device.toml")

TARGET = replace(
    load("generic"),
    name="edgetpu",
    summary="pipelines of Edge TPUs, for planning only: no code is made",
    serves=("coral", "coral_dev_board"),
    memories=(Memory("device", DEVICE.memory),),
    topology=None,
    device=DEVICE,
)
