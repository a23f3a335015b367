<%namespace name="products" file="pulp_products.mako"/>\
${kernel}(&(struct pulp_matmul){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
${products.batches(a, b, y)}\
    .rows = ${y.extent[-2]}, .a_row = ${a.stride[-2]}, .y_row = ${y.stride[-2]},
${products.zeros(attrs, scratch)}\
    .product = {
        .depth = ${extent["k"]}, .filters = ${y.extent[-1]}, .w_row = ${b.stride[-2]},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
