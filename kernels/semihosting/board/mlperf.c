/* Network NETWORK of the project behind the commands of MLPerf Tiny's runner (github.com/mlcommons/tiny,
 * benchmark/runner): lines that end with `%`, answers that end with `m-ready`. The runner sends the bytes of a file as
 * the reference models take them: images row by row with the channels of a pixel side by side. They are the input as
 * the network stores it, unless MLPERF_VALUES says that each byte is an element with the real value MLPERF_SCALE *
 * (byte + MLPERF_OFFSET). Further macros: MLPERF_MODEL    the benchmark: kws01, vww01, ic01, ad01 MLPERF_SIGNED   bytes
 * are signed MLPERF_ANOMALY  the result is the mean of the squares of output - input. */
#include <string.h>

#include "board.h"
#include "deeploy_values.h"
#include "program.h"

#ifndef NETWORK
#define NETWORK 0
#endif
#ifndef MLPERF_MODEL
#define MLPERF_MODEL unknown
#endif
#ifndef MLPERF_OFFSET
#define MLPERF_OFFSET 0
#endif
#ifndef MLPERF_SCALE
#define MLPERF_SCALE 1
#endif
#ifdef MLPERF_SIGNED
#define byte_value int8_t
#else
#define byte_value uint8_t
#endif

#define TEXT(words) TEXT_OF(words)
#define TEXT_OF(words) #words

enum { LONGEST = 80 }; /* characters of a command */

static struct program program;
static uint8_t *buffer;
static uint32_t wanted, loaded, room; /* bytes of the buffer: that will come, that have come, that it can hold */

static void put(const char *text) {
    while (*text) board_put(*text++);
}

static void put_number(uint64_t number) {
    char digits[20];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count) board_put(digits[--count]);
}

/* With six digits after the point; values beyond 10^12 are printed as that. */
static void put_value(double value) {
    if (value < 0) board_put('-');
    const double size = value < 0 ? -value : value;
    const uint64_t millionths = (uint64_t)((size < 1e12 ? size : 1e12) * 1e6 + 0.5);
    put_number(millionths / 1000000);
    board_put('.');
    uint32_t rest = (uint32_t)(millionths % 1000000);
    for (uint32_t digit = 100000; digit; digit /= 10) {
        board_put((int)('0' + rest / digit));
        rest %= digit;
    }
}

static void put_line(const char *text) {
    put(text);
    put("\r\n");
}

static void put_lap(void) {
    put("m-lap-us-");
    put_number(board_clock() * 1000000 / board_hertz);
    put_line("");
}

_Noreturn void program_fail(const char *what) {
    for (;;) { /* whatever is asked */
        put("e-[");
        put(what);
        put_line("]");
        while (board_get() != '%') continue;
    }
}

static const char *after(const char *text, const char *word) {
    const size_t length = strlen(word);
    if (strncmp(text, word, length) || (text[length] && text[length] != ' ')) return 0;
    return text + length + (text[length] == ' ');
}

/* The number that a text begins with, and the text after it and a space; `otherwise` where there is none. */
static uint32_t number(const char **text, uint32_t otherwise) {
    if (**text < '0' || **text > '9') return otherwise;
    uint32_t value = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++) value = value * 10 + (uint32_t)(**text - '0');
    if (**text == ' ') (*text)++;
    return value;
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void load(const char *text) {
    for (; *text; text += 2) {
        const int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
        if (low < 0 || loaded >= wanted) {
            put_line(low < 0 ? "e-[no hexadecimal digits]" : "e-[more bytes than were announced]");
            return;
        }
        buffer[loaded++] = (uint8_t)(high << 4 | low);
    }
    if (loaded == wanted) put_line("m-load-done");
}

static void data(const char *text) {
    const char *rest;
    if ((rest = after(text, "load"))) {
        const uint32_t bytes = number(&rest, 0);
        if (!bytes || bytes > room) {
            put_line("e-[no such number of bytes fits the network's input]");
            return;
        }
        wanted = bytes;
        loaded = 0;
        put("m-[Expecting ");
        put_number(bytes);
        put_line(" bytes]");
    } else if ((rest = after(text, "print"))) {
        const uint32_t count = number(&rest, 16), from = number(&rest, 0);
        put("m-buffer");
        for (uint32_t i = from; i < loaded && i - from < count; i++) {
            board_put('-');
            board_put("0123456789abcdef"[buffer[i] >> 4]);
            board_put("0123456789abcdef"[buffer[i] & 15]);
        }
        put_line("");
    } else {
        load(text);
    }
}

/* The input of the network from the bytes that came; returns whether these are an input. */
static int set_input(void) {
    const struct deeploy_tensor *const input = &program.net->inputs[0];
#ifdef MLPERF_VALUES
    if (loaded != deeploy_elements(input)) return 0;
    const float scale = (float)(MLPERF_SCALE), offset = (float)(MLPERF_OFFSET);
    for (uint32_t i = 0; i < loaded; i++)
        deeploy_store(input, program.inputs[0], i, scale * ((float)(byte_value)buffer[i] + offset));
#else
    if (loaded != input->bytes) return 0;
    memcpy(program.inputs[0], buffer, loaded);
#endif
    return 1;
}

static void put_results(void) {
    const struct deeploy_tensor *const output = &program.net->outputs[0];
    put("m-results-[");
#ifdef MLPERF_ANOMALY
    double sum = 0;
    for (size_t i = 0; i < deeploy_elements(output); i++) {
        const double difference = (double)deeploy_value(output, program.outputs[0], i) -
                                  (double)deeploy_value(&program.net->inputs[0], program.inputs[0], i);
        sum += difference * difference;
    }
    put_value(sum / (double)deeploy_elements(output));
#else
    for (size_t i = 0; i < deeploy_elements(output); i++) {
        if (i) board_put(',');
        put_value((double)deeploy_value(output, program.outputs[0], i));
    }
#endif
    put_line("]");
}

static void infer(const char *text) {
    const uint32_t times = number(&text, 1), warm = number(&text, 10);
    if (!set_input()) {
        put_line("e-[the bytes that were loaded are no input of this network]");
        return;
    }
    put("m-warmup-start-");
    put_number(warm);
    put_line("");
    for (uint32_t i = 0; i < warm; i++)
        if (program.net->run((const void *const *)program.inputs, program.outputs) != DEEPLOY_OK)
            program_fail("run failed");
    put_line("m-warmup-done");
    put("m-infer-start-");
    put_number(times);
    put_line("");
    put_lap();
    for (uint32_t i = 0; i < times; i++)
        if (program.net->run((const void *const *)program.inputs, program.outputs) != DEEPLOY_OK)
            program_fail("run failed");
    put_lap();
    put_line("m-infer-done");
    put_results();
}

static void obey(const char *text) {
    const char *rest;
    if (after(text, "name")) {
        put_line("m-name-dut-[deeploy]");
    } else if (after(text, "profile")) {
        put_line("m-profile-[ULPMark for tinyML Firmware V0.0.1]");
        put_line("m-model-[" TEXT(MLPERF_MODEL) "]");
    } else if (after(text, "timestamp")) {
        put_lap();
    } else if ((rest = after(text, "db"))) {
        data(rest);
    } else if ((rest = after(text, "infer"))) {
        infer(rest);
    } else if (after(text, "results")) {
        put_results();
    } else if (after(text, "help")) {
        put_line(
            "name, profile, timestamp, db load N, db HEX, db print [N] [OFFSET], infer N [WARM], results; each ends "
            "with %");
    } else {
        put("e-[Unknown command: ");
        put(text);
        put_line("]");
    }
}

int main(void) {
    static char text[LONGEST + 1];
    board_begin();
    board_start_clock();
    program = program_begin(deeploy_networks[NETWORK]);
    room = (uint32_t)program.net->inputs[0].bytes;
    buffer = program_allocate(room);
    put_line("m-init-done");
    for (;;) {
        put_line("m-ready");
        int length = 0;
        for (int c; (c = board_get()) != '%';) {
            if (c == '\r' || c == '\n') continue;
            text[length < LONGEST ? length : 0] = (char)c;
            length += length < LONGEST;
        }
        text[length] = 0;
        obey(text);
    }
}
