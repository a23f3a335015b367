"""Features of sound in front of the wake word's network: python examples/wakeword/front.py NETWORK.onnx SOUND.onnx"""

from __future__ import annotations

import sys

import onnx
from train import FEATURES

import deeploy

onnx.save(deeploy.frontend_audio(sys.argv[1], FEATURES), sys.argv[2])
