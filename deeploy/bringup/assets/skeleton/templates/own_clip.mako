<% low, high = limits(attrs, y.dtype) %>\
${kernel}(&(struct own_clip){.x = ${x.ptr}, .y = ${y.ptr}, .count = ${product(y.extent)}, .low = ${low}, .high = ${high}});
