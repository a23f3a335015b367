"""Quantisation of float models, beside the compiler: by onnxruntime, in the form that suits a target."""
