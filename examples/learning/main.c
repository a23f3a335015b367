/* The firmware of the example: how many of the held-out digits are right, some steps of training, and how many are
 * right then. */
#include "digits.h"
#include "infer.h"
#include "program.h"
#include "semihost.h"
#include "train.h"

static float image[1][1][8][8];

_Noreturn void program_fail(const char *what) {
    semihost_print(what);
    semihost_exit(1);
}

static void print_line(const char *what, uint32_t number) {
    char text[12] = {0};
    int at = 11;
    do text[--at] = (char)('0' + number % 10);
    while (number /= 10);
    semihost_print(what);
    semihost_print(" ");
    semihost_print(text + at);
    semihost_print("\n");
}

static void load(const unsigned char pixels[64]) {
    for (int i = 0; i < 64; i++) image[0][0][i / 8][i % 8] = (float)pixels[i] / 16.0f;
}

static uint32_t count_right(void) {
    uint32_t right = 0;
    for (int i = 0; i < TEST_DIGITS; i++) {
        float scores[1][10];
        int best = 0;
        load(test_images[i]);
        if (infer_run_typed(image, scores)) semihost_exit(2);
        for (int k = 1; k < 10; k++) {
            if (scores[0][k] > scores[0][best]) best = k;
        }
        right += best == test_labels[i];
    }
    return right;
}

int main(void);

int main(void) {
    if (train_init(0, 0) || infer_init(0, 0)) semihost_exit(1);
    print_line("right before", count_right());
    for (int i = 0; i < TRAIN_DIGITS; i++) {
        const int32_t label[1] = {train_labels[i]};
        float loss;
        load(train_images[i]);
        if (train_train_step(image, label, 0.02f, &loss)) semihost_exit(3);
    }
    print_line("steps", train_position() - TEST_DIGITS);
    print_line("right after", count_right());
    semihost_exit(0);
}
