<%
P = prefix.upper()
instance = f"struct {lead}_instance"


def declare(port):
    sizes = "".join(f"[{size}]" for size in port["shape"] or [1])
    return f"{port['c']} {port['parameter']}" if port["about"] == rate else f"const {port['c']} {port['parameter']}{sizes}"


%>\
% if is_training_step:
/* One training step, which computes the mean loss of the samples and changes the weights. */
static inline enum deeploy_status ${prefix}_train_step(${", ".join([*map(declare, inputs), "float *loss"])}) {
    const void *const inputs[] = {${", ".join(("&" if port["about"] == rate else "") + port["parameter"] for port in inputs)}};
    void *const outputs[] = {loss};
    return ${prefix}_run(inputs, outputs);
}

% endif
% if weights:
/* A checkpoint: the weights and whatever else outlives an inference, in ${P}_CHECKPOINT_BYTES bytes. It begins with the version of this
 * format, a hash of names, types and shapes, the number of inferences so far, and the CRC-32 of all of it.
 * ${prefix}_weights_get returns DEEPLOY_ERROR_CONTEXT before the first inference, when the weights are those of the model.
 * ${prefix}_weights_set returns DEEPLOY_ERROR_WEIGHTS, and changes nothing, if a checkpoint is damaged or one of another network. */
#define ${P}_CHECKPOINT_BYTES ${16 + sum(count for _, count in weights)}
enum deeploy_status ${prefix}_instance_weights_get(${instance} *instance, unsigned char *checkpoint);
enum deeploy_status ${prefix}_instance_weights_set(${instance} *instance, const unsigned char *checkpoint);
enum deeploy_status ${prefix}_weights_get(unsigned char *checkpoint);
enum deeploy_status ${prefix}_weights_set(const unsigned char *checkpoint);

% endif
