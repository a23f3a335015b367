<%!
from deeploy.operators import rotate
from deeploy.operators.elementwise import loops
%>\
<%
by_cosine, by_sine, found = rotate.in_words(node)
cut = 16 if found.form == "halves" else 0
low = (1 << cut) - 1
%>\
<%def name="product(constants, form)">{
        .a_zero_point = ${constants[0]}, .b_zero_point = ${constants[1]}, .limit = ${form.limit or 0},
        .mul = ${form.mul.item()}, .add = ${c_int(form.add.item())}, .left = ${form.left}, .shift = ${form.shift},
        .low = ${constants[5]}, .high = ${constants[6]},
    }</%def>\
${kernel}(&(struct pulp_rotate){
    .x = ${x.ptr}, .cosine = ${cosine.ptr}, .sine = ${sine.ptr}, .table = ${table.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, cosine=cosine, sine=sine, y=y)},
    .is_interleaved = ${int(bool(attrs.get("interleaved")))}, .smallest = ${x.dtype.range[0]},
    .by_cosine = ${product(attrs["cosine"], by_cosine)},
    .by_sine = ${product(attrs["sine"], by_sine)},
    .sum = {
        .a_mul = ${c_int(found.mul_a >> cut)}, .b_mul = ${c_int(found.mul_b >> cut)}, .add = ${c_int(found.add >> cut)},
        .a_low = ${found.mul_a & low}, .b_low = ${found.mul_b & low}, .add_low = ${found.add & low},
        .shift = ${found.shift - cut}, .low = ${attrs["sum"][4]}, .high = ${attrs["sum"][5]},
    },
});
