<%
rank, axes, keepdims = len(x.shape), attrs["axes"], attrs["keepdims"]
kept = [i for i in range(rank) if i not in axes]
result = kept if keepdims else range(len(kept))  # the axes of y that belong to them

def six(values, filler):
    return "{" + ", ".join(map(str, [filler] * (6 - len(values)) + values)) + "}"
%>\
${kernel}(&(struct reduce){
    .x = ${x.ptr}, .y = ${y.ptr}, .operation = ${operation},
    .kept = ${six([x.extent[i] for i in kept], 1)},
    .x_kept = ${six([x.stride[i] for i in kept], 0)},
    .y_kept = ${six([y.stride[i] for i in result], 0)},
    .reduced = ${six([x.extent[i] for i in axes], 1)},
    .x_reduced = ${six([x.stride[i] for i in axes], 0)},
    .epilogue = ${epilogue},
});
