<%
P = prefix.upper()
base = levels[0].lower()
instance = f"struct {lead}_instance"
offsets_of_states = [16 + sum(count for _, count in weights[:number]) for number in range(len(weights))]
%>\
<%def name="enter(function, fields)">\
% if is_flat:
    ${function}(&(struct checkpoint){${fields}});
% else:
    rt_enter(${function}, &(struct checkpoint){${fields}});
% endif
</%def>\
<%def name="check()">\
    if (!self || !self->${base}) return DEEPLOY_ERROR_NOT_INITIALISED;
    if (!checkpoint) return DEEPLOY_ERROR_NULL;
% if has_owner:
    if (${lead}_owner != self) return DEEPLOY_ERROR_STATES;
% endif
</%def>\
% if weights:
#define CHECKPOINT_VERSION 1u
#define CHECKPOINT_LAYOUT ${weights_layout}u

struct checkpoint {
    instance *self;
    unsigned char *to;
    const unsigned char *from;
};

static int read_states(void *argument) {
    instance *const self = ((struct checkpoint *)argument)->self;
    unsigned char *const bytes = ((struct checkpoint *)argument)->to;
% for (address, count), offset in zip(weights, offsets_of_states):
    memcpy(bytes + ${offset}, (const void *)(${address}), ${count});
% endfor
    return 0;
}

static int write_states(void *argument) {
    instance *const self = ((struct checkpoint *)argument)->self;
    const unsigned char *const bytes = ((struct checkpoint *)argument)->from;
% for (address, count), offset in zip(weights, offsets_of_states):
    memcpy((void *)(${address}), bytes + ${offset}, ${count});
% endfor
    return 0;
}

static void put_number(unsigned char *bytes, uint32_t number) {
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(number >> 8 * i);
}

static uint32_t check_of(const unsigned char *bytes) {
    return deeploy_crc32(deeploy_crc32(0, bytes, 12), bytes + 16, ${P}_CHECKPOINT_BYTES - 16);
}

enum deeploy_status ${prefix}_instance_weights_get(${instance} *self, unsigned char *checkpoint) {
${check()}\
    if (!self->past_rows) return DEEPLOY_ERROR_CONTEXT;
${enter("read_states", ".self = self, .to = checkpoint")}\
    put_number(checkpoint, CHECKPOINT_VERSION);
    put_number(checkpoint + 4, CHECKPOINT_LAYOUT);
    put_number(checkpoint + 8, (uint32_t)self->past_rows);
    put_number(checkpoint + 12, check_of(checkpoint));
    return DEEPLOY_OK;
}

enum deeploy_status ${prefix}_instance_weights_set(${instance} *self, const unsigned char *checkpoint) {
${check()}\
    if (deeploy_number(checkpoint) != CHECKPOINT_VERSION || deeploy_number(checkpoint + 4) != CHECKPOINT_LAYOUT) return DEEPLOY_ERROR_WEIGHTS;
    const uint32_t position = deeploy_number(checkpoint + 8);
    if (deeploy_number(checkpoint + 12) != check_of(checkpoint) || !position || position > ${P}_CONTEXT) return DEEPLOY_ERROR_WEIGHTS;
${enter("write_states", ".self = self, .from = checkpoint")}\
    self->past_rows = (int32_t)position;
    return DEEPLOY_OK;
}

enum deeploy_status ${prefix}_weights_get(unsigned char *checkpoint) {
    return ${prefix}_instance_weights_get(&${lead}_default_instance, checkpoint);
}

enum deeploy_status ${prefix}_weights_set(const unsigned char *checkpoint) {
    return ${prefix}_instance_weights_set(&${lead}_default_instance, checkpoint);
}

% endif
