<% pitch = -(-geometry.extents["k"] // 4) * 4 %>\
<%namespace name="products" file="pulp_products.mako"/>\
${kernel}(&(struct pulp_matmul_columns){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
${products.batches(a, b, y)}\
    .rows = ${y.extent[-2]}, .columns = ${y.extent[-1]},
    .a_row = ${a.stride[-2]}, .b_row = ${b.stride[-2]}, .y_row = ${y.stride[-2]},
    .turned = ${scratch["turned"]}, .room = ${scratch["turned"].bytes // pitch},
${products.zeros(attrs, scratch)}\
    .product = {
        .depth = ${extent["k"]}, .filters = 4, .w_row = ${pitch},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
