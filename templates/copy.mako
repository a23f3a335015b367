<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct copy){
    .x = x, .y = y,
    ${loops(y.extent, x=x, y=y)},
});
