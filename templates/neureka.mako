<%!
PIXELS = 6  # of a subtile, in height and width


def subtiles(height, width):
    return -(-height // PIXELS) * -(-width // PIXELS)


def rectangle(pixels):
    """The image of so many pixels in the fewest subtiles, the widest of them; None where two images take fewer."""
    sides = [(pixels // width, width) for width in range(pixels, 0, -1) if pixels % width == 0]
    best = min(sides, key=lambda side: subtiles(*side))
    rows, rest = divmod(pixels, PIXELS)
    return best if subtiles(*best) <= subtiles(rows, PIXELS) + (rest > 0) + 1 else None
%>\
<%def name="tile(kernel, layer, addresses, sizes, images, linear)">\
<%
"""A tile of which one job is left that was not waited for.

layer: the fields of struct neureka_layer; addresses, sizes: those of struct neureka_tile; images: how many, and their distances.
Sizes that are known now leave the compiler nothing to compute but the addresses: the registers are constants.
"""
sizes = {name: value if isinstance(value, int) else str(value) for name, value in sizes.items()}
is_known = images[0] == 1 and all(isinstance(value, int) for value in sizes.values())
if is_known and linear:
    shape = rectangle(sizes["height"] * sizes["width"])
    is_known = shape is not None
    if is_known:
        sizes |= dict(height=shape[0], width=shape[1], x_row=shape[1] * sizes["x_pixel"], y_row=shape[1] * sizes["y_pixel"])
    elif sizes["height"] == 1:
        sizes |= dict(height=sizes["width"], width=1)


def fields(values):
    return ", ".join(f".{name} = {value}" for name, value in values.items())
%>\
% if is_known:
const struct neureka_layer layer = {${fields(layer)}};
const struct neureka_tile tile = {
    ${fields(addresses)},
    ${fields(sizes)},
};
neureka_known_job(ACCELERATOR_npu, &layer, &tile);
% else:
const struct neureka_conv call = {
    .accelerator = ACCELERATOR_npu,
    .layer = {${fields(layer)}},
    .tile = {
        ${fields(addresses)},
        ${fields(sizes)},
    },
    ${fields(dict(images=images[0], x_image=images[1], y_image=images[2], is_linear=int(linear)))},
};
${kernel}(&call);
% endif
</%def>
