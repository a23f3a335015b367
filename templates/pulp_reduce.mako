<%!
import math

from deeploy.operators import reduce
%>\
<%
count = math.prod(x.extent[axis] for axis in attrs["axes"])
has_channels = not attrs["keepdims"] or len(x.shape) - 1 not in attrs["axes"]
%>\
${kernel}(&(struct pulp_reduce){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${reduce.loops(x, y, attrs)},
    .count = ${count}, .shift = ${count.bit_length() - 1 if is_shifted else -1},
    .channel_step = ${int(has_channels)},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
