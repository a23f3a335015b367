/* Generates tokens with a network of the project, for applications with a file system.
 *
 * Arguments PROMPT TOKENS MOST END TEMPERATURE TOP_P SEED: PROMPT is a file of tokens, 32-bit integers in native byte
 * order. TOKENS receives the generated ones in the same format, each as soon as it is known. The others are the fields
 * of struct deeploy_generation. */
#ifndef DEEPLOY_TOKENS_H
#define DEEPLOY_TOKENS_H

#include <stdio.h>
#include <stdlib.h>

#include "deeploy_network.h"

enum { TOKEN_ARGUMENTS = 7 };

static int put_token(int32_t token, void *file) {
    return fwrite(&token, sizeof token, 1, file) != 1 || fflush(file);
}

static int32_t *read_tokens(FILE *file, uint32_t *count) {
    int32_t *tokens = NULL;
    for (*count = 0; file; ++*count) {
        int32_t *const larger = realloc(tokens, sizeof *tokens * ((size_t)*count + 1));
        if (!larger) break;
        tokens = larger;
        if (fread(&tokens[*count], sizeof *tokens, 1, file) != 1) break;
    }
    return tokens;
}

static int write_tokens(const struct deeploy_network *net, int argc, char **argv) {
    if (argc < TOKEN_ARGUMENTS || !net->generate) {
        fprintf(stderr, net->generate ? "arguments are missing\n" : "the network does not write tokens\n");
        return 1;
    }
    FILE *in = fopen(argv[0], "rb"), *out = fopen(argv[1], "wb");
    struct deeploy_generation g = {.most = (uint32_t)strtoul(argv[2], NULL, 10),
                                   .end = (int32_t)strtol(argv[3], NULL, 10),
                                   .temperature = (uint32_t)strtoul(argv[4], NULL, 10),
                                   .top_p = (uint32_t)strtoul(argv[5], NULL, 10),
                                   .seed = strtoull(argv[6], NULL, 10),
                                   .on_token = put_token,
                                   .user = out};
    int32_t *const prompt = read_tokens(in, &g.prompt_tokens);
    g.prompt = prompt;
    const int status = out && prompt ? (int)net->generate(&g) : DEEPLOY_ERROR_NULL;
    if (status) fprintf(stderr, "writing tokens ended with status %d\n", status);
    free(prompt);
    if (in) fclose(in);
    return (out && fclose(out)) | (status != 0);
}

#endif
