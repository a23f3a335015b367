<%def name="variables()">\
/* Rows of the states before an inference, and with its own. */
static int32_t past_rows, live_rows;

</%def>\
\
<%def name="begin()">\
    if (past_rows > ${prefix.upper()}_CONTEXT - ${prefix.upper()}_ROWS) return DEEPLOY_ERROR_CONTEXT;
    live_rows = past_rows + ${prefix.upper()}_ROWS;
</%def>\
\
<%def name="functions()">\
uint32_t ${prefix}_position(void) {
    return (uint32_t)past_rows;
}

enum deeploy_status ${prefix}_seek(uint32_t position) {
    if (position > (uint32_t)past_rows) return DEEPLOY_ERROR_CONTEXT;
    past_rows = (int32_t)position;
    return DEEPLOY_OK;
}

</%def>\
