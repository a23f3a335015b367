<%
rank, axes, keepdims = len(x.extent), attrs["axes"], attrs["keepdims"]
kept = [i for i in range(rank) if i not in axes]
y_axis = {i: (i if keepdims else position) for position, i in enumerate(kept)}
count = 1
for i in axes:
    count *= x.extent[i]
operation = {
    "ReduceSum": "REDUCE_SUM", "ReduceMean": "REDUCE_MEAN", "ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN",
    "IntegerMean": "REDUCE_SHIFT_MEAN" if count & (count - 1) == 0 and not keepdims else "REDUCE_INTEGER_MEAN",
}[node.op]

def six(values, filler):
    return "{" + ", ".join(map(str, [filler] * (6 - len(values)) + list(values))) + "}"
%>\
${kernel}(&(struct reduce){
    .x = x, .y = y, .operation = ${operation},
    .kept = ${six([x.extent[i] for i in kept], 1)}, .x_kept = ${six([x.stride[i] for i in kept], 0)}, .y_kept = ${six([y.stride[y_axis[i]] for i in kept], 0)},
    .reduced = ${six([x.extent[i] for i in axes], 1)}, .x_reduced = ${six([x.stride[i] for i in axes], 0)},
    .epilogue = ${epilogue},
});
