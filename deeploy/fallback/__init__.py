"""Operators without a kernel, by the C of a generator of portable C: untiled kernels that are made when a model asks for them.

A node that the target's passes and kernels refuse, and that ONNX defines, becomes a node of the domain ``deeploy.fallback`` with a kernel
of its own: the generator (``emx-onnx-cgen``, the extra ``fallback``) writes C for a model of that node alone. Its operands are whole
and packed; its local arrays become scratch memory of the call, so that the plan counts them; its reference is onnx's.
"""

from deeploy.fallback.fill import Filled, fill_model
from deeploy.fallback.generate import generator_version

__all__ = ["Filled", "fill_model", "generator_version"]
