"""TensorFlow Lite files as ONNX models whose integer operators have the arithmetic of TensorFlow Lite's reference kernels.

``flatbuffer`` reads the bytes and ``reading`` the network, ``operators`` has a record for every operator, with ``moves``, ``quantised``,
``words`` and ``stateful``; ``requantising`` and ``fixed_point`` have the numbers of TensorFlow Lite.
"""

from deeploy.frontend.tflite.reading import is_tflite as is_tflite
from deeploy.frontend.tflite.reading import read_network as read_network
