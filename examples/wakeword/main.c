/* Listens: takes sound from standard input, 16-bit samples of one channel or a WAV file, and says at which second the
 * wake word has ended. A microphone on Linux: arecord -f S16_LE -r 8000 -t raw | listen */
#include "network.h"
#include <stdio.h>
#include <string.h>

#define RATE 8000         /* samples in a second */
#define WINDOW 1.04       /* seconds that a score is of */
#define WAV_HEAD_BYTES 44 /* in front of samples */

static _Alignas(NETWORK_ARENA_ALIGNMENT) unsigned char arena[NETWORK_ARENA_BYTES];
static unsigned char bytes[2 * NETWORK_STREAM_HOP];
static float audio[1][NETWORK_STREAM_HOP], score[1][1];

/* Fills the buffer; false where the sound ends. */
static int read_hop(int is_first) {
    size_t kept = fread(bytes, 1, sizeof bytes, stdin);
    if (is_first && kept == sizeof bytes && memcmp(bytes, "RIFF", 4) == 0) {
        kept -= WAV_HEAD_BYTES;
        memmove(bytes, bytes + WAV_HEAD_BYTES, kept);
        kept += fread(bytes + kept, 1, sizeof bytes - kept, stdin);
    }
    return kept == sizeof bytes;
}

int main(void) {
    if (network_init(arena, sizeof arena) != DEEPLOY_OK) return 1;
    int was_heard = 0;
    for (long call = 1; read_hop(call == 1); call++) {
        const double end = (double)(call * NETWORK_STREAM_HOP - NETWORK_OUTPUT_0_DELAY) / RATE;
        for (int i = 0; i < NETWORK_STREAM_HOP; i++) {
            const int sample = bytes[2 * i] | bytes[2 * i + 1] << 8;
            audio[0][i] = (float)(sample >= 32768 ? sample - 65536 : sample) / 32768.0f;
        }
        if (network_run_typed(audio, score) != DEEPLOY_OK) return 1;
        const int is_heard = end >= WINDOW && score[0][0] > 0.85f;
        if (is_heard && !was_heard) printf("%.2f s\n", end);
        was_heard = is_heard;
        fflush(stdout);
    }
    return 0;
}
