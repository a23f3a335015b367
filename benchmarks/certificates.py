"""Whether the C of networks is certified, and what that takes beside compiling (docs/trust.md).

python benchmarks/certificates.py [--target NAME ...] [--chips N ...] [MODEL ...]

Models are ONNX files; by default all of the folder of networks. What does not compile as it is, is left out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

from common import MODELS, print_machine

from deeploy.certify import CertificateError
from deeploy.driver.compile import compile_chips, compile_networks, load_target
from deeploy.driver.project import Project
from deeploy.driver.request import Cut, Request
from deeploy.errors import DeeployError


def compiled(model: Path, target: str, chips: int) -> Project:
    """A model for a target, or for several chips of it, without a certificate."""
    request = Request(certify=False)
    if chips > 1:
        return compile_chips(model, load_target(target), Cut(chips), request)
    return compile_networks({"network": model}, load_target(target), request)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--target", nargs="*", default=["generic", "siracusa"])
    parser.add_argument("--chips", nargs="*", type=int, default=[1])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print_machine()
    models = [model.resolve() for model in arguments.models] or sorted(MODELS.rglob("*.onnx"))
    print(f"{'model':48} {'target':10} {'chips':>5} {'compile s':>9} {'certify s':>9}  CPU seconds")
    refused = 0
    for model, target, chips in ((m, t, c) for m in models for t in arguments.target for c in arguments.chips):
        name = str(model.relative_to(MODELS) if model.is_relative_to(MODELS) else model).removesuffix("/network.onnx")
        try:
            begin = time.process_time()
            project = compiled(model, target, chips)
            files = project.files()
            end = time.process_time()
        except DeeployError:
            continue
        try:
            project.certify(files)
            verdict = "certified"
        except CertificateError as error:
            verdict, refused = str(error), refused + 1
        print(f"{name[-48:]:48} {target:10} {chips:5} {end - begin:9.2f} {time.process_time() - end:9.2f}  {verdict}", flush=True)
    return int(refused > 0)


if __name__ == "__main__":
    raise SystemExit(main())
