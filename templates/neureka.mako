<%!
from deeploy.ir.expr import value_bounds

PIXELS = 6  # of a subtile, in height and width


def subtiles(height, width):
    return -(-height // PIXELS) * -(-width // PIXELS)


def rectangle(pixels):
    """The image of so many pixels in the fewest subtiles, the widest of them; None where two images take fewer."""
    sides = [(pixels // width, width) for width in range(pixels, 0, -1) if pixels % width == 0]
    best = min(sides, key=lambda side: subtiles(*side))
    rows, rest = divmod(pixels, PIXELS)
    return best if subtiles(*best) <= subtiles(rows, PIXELS) + (rest > 0) + 1 else None


def is_full(width):
    """Whether images of such rows fill five sixths of the engine, whatever their height is."""
    return isinstance(width, int) and 5 * PIXELS * subtiles(1, width) <= 6 * width


def fields(values):
    return ", ".join(f".{name} = {value}" for name, value in values.items())
%>\
<%def name="tile(kernel, layer, addresses, sizes, images, linear)">\
<%
"""A tile of which one job is left that was not waited for.

layer: the fields of struct neureka_layer; addresses, sizes: those of struct neureka_tile; images: how many, and their distances.
Sizes that are known now leave the compiler nothing to compute but the addresses: the registers are constants. Those of a job that
differs from tile to tile are computed here as well: the kernel's function, for any number of images and pixels, takes a thousand cycles more.
"""
most = {name: value if isinstance(value, int) else value_bounds(value)[1] for name, value in sizes.items()} if linear else {}
sizes = {name: value if isinstance(value, int) else str(value) for name, value in sizes.items()}
extents = [name for name in ("height", "width", "channels_in", "channels_out") if not isinstance(sizes[name], int)]
is_known = images[0] == 1 and all(isinstance(value, int) for value in sizes.values())
is_one = images[0] == 1 and (not linear or is_full(sizes["width"]))
shape = rectangle(most["height"] * most["width"]) if linear and images[0] == 1 and (is_known or not is_one) else None
full = ""  # the condition that a tile is as large as the largest, which is one job of constant sizes
if shape is not None:
    sides = dict(height=shape[0], width=shape[1], x_row=shape[1] * most["x_pixel"], y_row=shape[1] * most["y_pixel"])
    largest = most | sides
    full = "" if is_known else " && ".join(f"{sizes[name]} == {most[name]}" for name in extents)
    sizes = largest if is_known else sizes
elif linear and is_known and sizes["height"] == 1:
    sizes |= dict(height=sizes["width"], width=1, x_row=sizes["x_pixel"], y_row=sizes["y_pixel"])
is_one = is_one or (is_known and shape is not None) or (is_known and not linear)
%>\
% if full:
if (${full}) {
${job(layer, addresses, largest)}\
} else {
${call(kernel, layer, addresses, sizes, images, linear)}\
}
% elif is_one:
${job(layer, addresses, sizes)}\
% else:
${call(kernel, layer, addresses, sizes, images, linear)}\
% endif
</%def>
<%def name="job(layer, addresses, sizes)">\
    const struct neureka_layer layer = {${fields(layer)}};
    const struct neureka_tile tile = {
        ${fields(addresses)},
        ${fields(sizes)},
    };
    neureka_known_job(ACCELERATOR_npu, &layer, &tile);
</%def>
<%def name="call(kernel, layer, addresses, sizes, images, linear)">\
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
</%def>
