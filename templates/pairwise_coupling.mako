<%! from deeploy.operators.coupling import PRECISION, ROUNDS%>\
${kernel}(&(struct pairwise_coupling){
    .x = ${x.ptr}, .y = ${y.ptr}, .work = ${scratch["work"]},
    .rows = ${y.extent[0]}, .classes = ${y.extent[1]}, .x_step = ${x.stride[0]}, .y_step = ${y.stride[0]},
    .rounds = ${ROUNDS}, .precision = ${c_float(PRECISION)} / ${c_float(attrs["classes"])},
});
