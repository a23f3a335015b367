<%namespace name="neureka" file="neureka.mako"/>\
<%
halo, size = taps - 1, y.dtype.bytes
stride_h, stride_w = attrs["strides"]
is_linear = (
    (taps, stride_h, stride_w) == (1, 1, 1)
    and x.stride[1] == x.extent[2] * x.stride[2]
    and y.stride[1] == y.extent[2] * y.stride[2]
)


def behind(axis):
    """Rows or columns beyond the border behind x."""
    out, before, inside = y.extent[axis], x.before[axis], x.extent[axis]
    if all(isinstance(value, int) for value in (out, before, inside)):
        return out + halo - before - inside
    return f"{out} + {halo} - ({before}) - {inside}"


added = f" | (({x.first[3]}) ? 1u << 14 : 0u)" if accumulates else ""  # to the sums of the tile before
fields = {**layer, "config": layer["config"] + added}
constants = {field: f"(rt_address){context[name].ptr}" for field, name in operands.items()}
sizes = {
    "height": y.extent[1], "width": y.extent[2], "channels_in": x.extent[3], "channels_out": y.extent[3],
    "x_pixel": x.stride[2] * stride_w, "x_row": x.stride[1] * stride_h, "y_pixel": y.stride[2] * size, "y_row": y.stride[1] * size,
    "top": x.before[1] if halo else 0, "left": x.before[2] if halo else 0,
    "bottom": behind(1) if halo else 0, "right": behind(2) if halo else 0,
}
%>\
${neureka.tile(
    kernel,
    fields,
    {"x": f"(rt_address){x.ptr}", "y": f"(rt_address){y.ptr}", "weights": f"(rt_address){w.ptr}", **constants},
    sizes,
    (y.extent[0], x.stride[0], y.stride[0] * size),
    is_linear,
)}
