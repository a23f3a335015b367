<%def name="variables()">\
% if sharing:
/* Rows of the states before an inference${", which are also those of " + " and ".join(sharing) if lead == prefix else ": those of " + lead}; and with its own. */
${"extern " if lead != prefix else ""}int32_t ${lead}_past_rows;
#define past_rows ${lead}_past_rows
static int32_t live_rows;
% else:
/* Rows of the states before an inference, and with its own. */
static int32_t past_rows, live_rows;
% endif
% if growth.position:
static int64_t position; /* the former, as calls read it */
% endif

</%def>\
\
<%def name="begin()">\
    if (past_rows > ${"0" if growth.begins else f"{prefix.upper()}_CONTEXT - {prefix.upper()}_ROWS"}) return DEEPLOY_ERROR_CONTEXT;
    live_rows = past_rows + ${prefix.upper()}_ROWS;
% if growth.position:
    position = past_rows;
% endif
</%def>\
\
<%def name="functions()">\
uint32_t ${prefix}_position(void) {
    return (uint32_t)past_rows;
}

enum deeploy_status ${prefix}_seek(uint32_t rows) {
    if (rows > (uint32_t)past_rows) return DEEPLOY_ERROR_CONTEXT;
    past_rows = (int32_t)rows;
    return DEEPLOY_OK;
}

</%def>\
