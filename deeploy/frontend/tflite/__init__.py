"""TensorFlow Lite files as ONNX models whose integer operators have the arithmetic of TensorFlow Lite's reference kernels.

``flatbuffer`` reads the bytes, ``network`` builds the nodes, ``operators`` and ``quantised`` have a record for every operator, and
``fixed_point`` has the numbers of TensorFlow Lite.
"""

from deeploy.frontend.tflite.network import is_tflite as is_tflite
from deeploy.frontend.tflite.network import read_network as read_network
