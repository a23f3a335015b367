<%! from deeploy.operators import reduce%>\
${kernel}(&(struct reduce){
    .x = ${x.ptr}, .y = ${y.ptr}, .operation = ${operation},
    ${reduce.loops(x, y, attrs)},
    .epilogue = ${epilogue},
});
