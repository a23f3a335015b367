<%
P = prefix.upper()
Q = prompt.prefix.upper() if prompt else ""
instance, writer = f"struct {lead}_instance", f"struct {prefix}_writer"
masks = [reader.mask for reader in (step, prompt) if reader and reader.mask]
seen, hidden = ("0.0f", "-1e9f") if masks and masks[0].dtype.is_float else ("1", "0")
%>\
/* Generates tokens with network ${prefix}${f", after network {prompt.prefix} has processed the prompt" if prompt else ""}. Sampling uses integer arithmetic only, so that every machine generates the same text. */
#include <string.h>

#include "${prefix}.h"
% if prompt:
#include "${prompt.prefix}.h"
% endif

enum {
    TOKENS = ${step.tokens},
% if prompt:
    MANY = ${prompt.rows},
    WORTH = ${worth}, /* for this many prompt tokens or more, ${prompt.prefix} is faster than ${prefix} */
% endif
    FRACTION = ${fraction},             /* fractional bits of scores (logits) */
    LIMIT = 1 << 30,
    WEIGHT = ${weight},                   /* the most probable token has the weight 2^WEIGHT */
    BUCKET = ${bucket},                   /* a histogram bucket spans 2^BUCKET of distance: a factor of 2^(1/8) in probability */
    BUCKETS = WEIGHT << (FRACTION - BUCKET)
};

typedef ${step.score.c} score_type;

% if mask_array in kinds:
/* Fills the attention mask: row i lets the first `first + i` rows of the states be seen. */
static void show(${kinds[mask_array].c} *mask, uint32_t first, uint32_t rows, uint32_t columns) {
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) mask[i * columns + j] = j < first + i ? ${seen} : ${hidden};
    }
}

% endif
/* Maps a score to an unsigned integer with the same order. */
static uint32_t rank(const score_type *score) {
% if step.score.is_float:
    uint32_t bits;
    memcpy(&bits, score, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
% else:
    return (uint32_t)*score ^ UINT32_C(1) << 31;
% endif
}

/* A score as fixed-point number with FRACTION fractional bits. */
static int32_t fixed(const score_type *score) {
% if step.score.is_float:
    uint32_t bits;
    memcpy(&bits, score, sizeof bits);
    const int shift = (int)(bits >> 23 & 255) - 127 - 23 + FRACTION;
    int32_t magnitude = (int32_t)((bits & 0x7fffff) | 0x800000);
    if (shift > 6) magnitude = LIMIT;
    else if (shift >= 0) magnitude <<= shift;
    else magnitude = shift > -24 ? magnitude >> -shift : 0;
    return bits >> 31 ? -magnitude : magnitude;
% else:
    const int64_t value = (int64_t)*score * ${step.step};
    return (int32_t)(value > LIMIT ? LIMIT : value < -LIMIT ? -LIMIT : value);
% endif
}

/* log2 of (probability of the best token / probability of this one), with FRACTION fractional bits. */
static uint32_t distance(int32_t best, const score_type *score, uint32_t scale) {
    const uint64_t octaves = ((uint64_t)((uint32_t)best - (uint32_t)fixed(score)) * scale) >> FRACTION;
    return octaves < (uint64_t)WEIGHT << FRACTION ? (uint32_t)octaves : (uint32_t)WEIGHT << FRACTION;
}

/* 2^(WEIGHT - distance), interpolated linearly between 16 table entries. */
static uint32_t weight(uint32_t distance) {
    static const uint32_t powers[17] = {
% for i in range(0, 17, 8):
        ${", ".join(str(value) for value in exponents[i : i + 8])},
% endfor
    };
    const uint32_t at = distance >> (FRACTION - 4) & 15, rest = distance & ((1 << (FRACTION - 4)) - 1);
    const uint32_t power = powers[at] - ((powers[at] - powers[at + 1]) * rest >> (FRACTION - 4));
    return distance >> FRACTION < WEIGHT ? power >> (distance >> FRACTION) : 0;
}

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint64_t random_number(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Nucleus sampling: finds the buckets of most probable tokens that have `share` thousandths of all weight together.
 * Returns the sum of their weights; *end is the number of buckets. */
static uint64_t kept(uint64_t *sums, const score_type *s, int32_t best, uint32_t scale, uint32_t share, uint32_t *end) {
    uint64_t all = 0, sum = 0;
    memset(sums, 0, sizeof *sums * (BUCKETS + 1));
    for (int i = 0; i < TOKENS; i++) {
        const uint32_t far = distance(best, &s[i], scale), w = weight(far);
        sums[far >> BUCKET] += w;
        all += w;
    }
    const uint64_t wanted = share ? (all * share + 999) / 1000 : all;
    *end = 0;
    do sum += sums[(*end)++];
    while (sum < wanted);
    return sum;
}

static int32_t choose(uint64_t *sums, const score_type *s, const struct deeploy_generation *g, uint64_t *state) {
    int32_t best = 0;
    for (int i = 1; i < TOKENS; i++) {
        if (rank(&s[i]) > rank(&s[best])) best = i;
    }
    if (!g->temperature) return best;
    const uint64_t octave = UINT64_C(94548) * 1000 / g->temperature; /* 2^FRACTION / ln 2, over the temperature */
    const uint32_t scale = octave < UINT32_MAX ? (uint32_t)octave : UINT32_MAX;
    const int32_t top = fixed(&s[best]);
    uint32_t end;
    const uint64_t sum = kept(sums, s, top, scale, g->top_p < 1000 ? g->top_p : 0, &end);
    const uint64_t random = random_number(state) >> 32;
    uint64_t drawn = random * (sum >> 32) + (random * (sum & UINT32_MAX) >> 32);
    for (int i = 0; i < TOKENS; i++) {
        const uint32_t far = distance(top, &s[i], scale), w = far >> BUCKET < end ? weight(far) : 0;
        if (drawn < w) return i;
        drawn -= w;
    }
    return best;
}

/* Runs the network on one token, which is appended to the states. */
static enum deeploy_status append(${instance} *self, ${writer} *writer, int32_t token) {
    const void *const inputs[] = {${", ".join(f"writer->{source.kind}" for source in step.sources)}};
    void *const outputs[] = {writer->scores};
    writer->ids[0] = (${step.token.c})token;
% if place_array in kinds:
    writer->places[0] = (${kinds[place_array].c})${prefix}_instance_position(self);
% endif
% if step.mask:
    show(writer->mask, ${prefix}_instance_position(self) + 1, 1, ${step.mask.columns});
% endif
    return ${prefix}_instance_run(self, inputs, outputs);
}

% if prompt:
/* Runs ${prompt.prefix} on up to MANY tokens. If there are fewer, the surplus rows are discarded from the states. */
static enum deeploy_status append_many(${instance} *self, ${writer} *writer, const int32_t *tokens, uint32_t count) {
    const void *const inputs[] = {${", ".join(f"writer->{source.kind}" for source in prompt.sources)}};
    void *const outputs[] = {writer->scores};
    const uint32_t past = ${prompt.prefix}_instance_position(self);
    for (uint32_t i = 0; i < MANY; i++) writer->ids[i] = (${step.token.c})(i < count ? tokens[i] : 0);
% if place_array in kinds:
    for (uint32_t i = 0; i < MANY; i++) writer->places[i] = (${kinds[place_array].c})(past + i);
% endif
% if prompt.mask:
    show(writer->mask, ${"past + 1" if prompt.mask.rows > 1 else "past + MANY"}, ${prompt.mask.rows}, ${prompt.mask.columns});
% endif
    const enum deeploy_status status = ${prompt.prefix}_instance_run(self, inputs, outputs);
    return status == DEEPLOY_OK && count < MANY ? ${prompt.prefix}_instance_seek(self, past + count) : status;
}

% endif
/* Appends the prompt to the states. The scores of the next token begin at `scores + *at`. */
static enum deeploy_status read_prompt(${instance} *self, ${writer} *writer, const struct deeploy_generation *g, uint32_t *at) {
    enum deeploy_status status = DEEPLOY_OK;
    for (uint32_t done = 0, count; done < g->prompt_tokens && status == DEEPLOY_OK; done += count) {
        count = 1;
        *at = 0;
% if prompt:
        const uint32_t left = g->prompt_tokens - done;
        if (left >= WORTH && ${f"!{prefix}_instance_position(self)" if prompt.begins else f"{prefix}_instance_position(self) + MANY <= {P}_CONTEXT"}) {
            count = left < MANY ? left : MANY;
            status = append_many(self, writer, g->prompt + done, count);
% if prompt.scored > 1:
            *at = (count - 1) * TOKENS;
% endif
            continue;
        }
% endif
        status = append(self, writer, g->prompt[done]);
    }
    return status;
}

enum deeploy_status ${prefix}_instance_generate(${instance} *self, ${writer} *writer, struct deeploy_generation *g) {
    if (!self || !writer || !g || !g->prompt) return DEEPLOY_ERROR_NULL;
    g->count = 0;
    if (!g->prompt_tokens) return DEEPLOY_ERROR_TOKEN;
    if (g->prompt_tokens > ${P}_CONTEXT - ${prefix}_instance_position(self)) return DEEPLOY_ERROR_CONTEXT;
    for (uint32_t i = 0; i < g->prompt_tokens; i++) {
        if (g->prompt[i] < 0 || g->prompt[i] >= TOKENS) return DEEPLOY_ERROR_TOKEN;
    }
    uint32_t at = 0;
    uint64_t state = g->seed;
    enum deeploy_status status = read_prompt(self, writer, g, &at);
    while (status == DEEPLOY_OK && g->count < g->most) {
        const int32_t token = choose(writer->sums, writer->scores + at, g, &state);
        if (g->tokens) g->tokens[g->count] = token;
        g->count++;
        if (token == g->end || (g->on_token && g->on_token(token, g->user))) break;
        if (g->count == g->most || ${prefix}_instance_position(self) == ${P}_CONTEXT) break;
        status = append(self, writer, token);
        at = 0;
    }
    return status;
}

enum deeploy_status ${prefix}_generate(struct deeploy_generation *g) {
    static struct ${prefix}_writer writer;
    return ${prefix}_instance_generate(&${lead}_default_instance, &writer, g);
}
