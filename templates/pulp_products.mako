<%doc>What calls of kernels that multiply matrices share.</%doc>\
<%!
def four(values, filler):
    return "{" + ", ".join(map(str, [filler] * (4 - len(values)) + list(values))) + "}"


def has_batches(extents):
    return any(extent != 1 for extent in extents)
%>\
<%def name="batches(a, b, y)">\
% if has_batches(y.extent[:-2]):
    .batches = &(struct batches){
        ${four([*y.extent[:-3], f"unknown({y.extent[-3]})"], 1)}, ${four(a.stride[:-2], 0)}, ${four(b.stride[:-2], 0)}, ${four(y.stride[:-2], 0)},
    },
% else:
    .batches = 0,
% endif
</%def>\
<%def name="zeros(attrs, scratch)">\
% if "row_sums" in scratch:
    .zeros = &(struct pulp_zeros){
        ${attrs["a_zero_point"]}, ${attrs["b_zero_point"]},
        ${scratch["row_sums"]}, ${scratch["column_sums"]},
    },
% else:
    .zeros = 0,
% endif
</%def>\
