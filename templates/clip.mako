<%! from deeploy.operators.elementwise import loops%>\
<% low, high = limits(attrs, x.dtype) %>\
${kernel}(&(struct clip){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
% if x.dtype.is_float:
    .low_f = ${low}, .high_f = ${high},
% else:
    .low = ${low}, .high = ${high},
% endif
});
