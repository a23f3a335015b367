{
    const void *const inputs[] = {${", ".join(str(context[name].ptr) for name in names) or "0"}};
    void *const outputs[] = {${", ".join(str(context[name].ptr) for name in results)}};
    ${kernel}(&(struct fallback){.inputs = inputs, .outputs = outputs${f", .scratch = {scratch['work']}" if scratch else ""}});
}
