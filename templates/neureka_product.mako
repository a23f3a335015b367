<%namespace name="neureka" file="neureka.mako"/>\
<%
size = y.dtype.bytes
batch = next((axis for axis, extent in enumerate(y.shape[:-2]) if extent > 1), None)
added = f" | (({a.first[-1]}) ? 1u << 14 : 0u)" if accumulates else ""  # to the sums of the tile before
fields = {**layer, "config": layer["config"] + added}
constants = {field: f"(rt_address){context[name].ptr}" for field, name in operands.items()}
sizes = {
    "height": y.extent[-2], "width": 1, "channels_in": a.extent[-1], "channels_out": y.extent[-1],
    "x_pixel": a.stride[-2], "x_row": a.stride[-2], "y_pixel": y.stride[-2] * size, "y_row": y.stride[-2] * size,
    "top": 0, "left": 0, "bottom": 0, "right": 0,
}
%>\
${neureka.tile(
    kernel,
    fields,
    {"x": f"(rt_address){a.ptr}", "y": f"(rt_address){y.ptr}", "weights": f"(rt_address){b.ptr}", **constants},
    sizes,
    (1, 0, 0) if batch is None else (y.extent[batch], a.stride[batch], y.stride[batch] * size),
    True,
)}
