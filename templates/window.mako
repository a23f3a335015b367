<%doc>What calls of kernels that slide a window over a channels-last image say of it.</%doc>\
<%def name="steps(attrs)">.stride_h = ${attrs["strides"][0]}, .stride_w = ${attrs["strides"][1]},
    .dilation_h = ${attrs["dilations"][0]}, .dilation_w = ${attrs["dilations"][1]},</%def>\
<%def name="images(x, y)">.x_batch = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]},
    .y_batch = ${y.stride[0]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},</%def>\
