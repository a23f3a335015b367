{
    const void *const inputs[] = {${", ".join(context[name].ptr for name in names) or "0"}};
    void *const outputs[] = {${", ".join(context[name].ptr for name in results)}};
    ${kernel}(&(struct fallback){.inputs = inputs, .outputs = outputs${f", .scratch = {scratch['work']}" if scratch else ""}});
}
