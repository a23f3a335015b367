<%! from deeploy.operators.elementwise import loops%>\
<%def name="factors(p)">{${p[0]}, ${p[1]}, ${c_int(p[2])}, ${c_int(p[3])}, ${p[4]}, ${p[5]}, ${p[6]}, ${p[7]}}</%def>\
${kernel}(&(struct rotate){
    .x = ${x.ptr}, .cosine = ${cosine.ptr}, .sine = ${sine.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, cosine=cosine, sine=sine, y=y)},
% if attrs.get("interleaved"):
    .is_interleaved = 1,
% endif
% if not x.dtype.is_float:
    .table = ${context["table"].ptr}, .smallest = ${x.dtype.range[0]},
    .by_cosine = ${factors(attrs["cosine"])},
    .by_sine = ${factors(attrs["sine"])},
    .sum = {${", ".join(map(c_int, attrs["sum"][:3]))}, ${", ".join(map(str, attrs["sum"][3:]))}},
% endif
});
