/* y = the probabilities of classes of which x says those of each pair, by rounds of Wu, Lin and Weng's second method
 * (pairwise_coupling.h).
 *
 * x is [rows, pairs], y [rows, classes], all floats; the work is a matrix of [classes, classes]. A round takes, for
 * each pair of classes, two multiplications and additions and two divisions, which bound it.
 */
#include "pairwise_coupling.h"

#include <math.h>

/* The matrix of the system of a row; the probability of class i beside j is x, that of j beside i 1 - x. */
static void set_matrix(const struct pairwise_coupling *k, const float *x, float *matrix) {
    const int classes = k->classes;
    for (int i = 0; i < classes * classes; i++) matrix[i] = 0;
    for (int i = 0; i < classes; i++) {
        for (int j = i + 1; j < classes; j++, x++) {
            const float first = *x, second = 1 - *x;
            matrix[j * classes + j] += first * first;
            matrix[i * classes + i] += second * second;
            matrix[i * classes + j] = matrix[j * classes + i] = -first * second;
        }
    }
}

/* Whether the error of some probabilities is small; their products with the matrix, and their sum. */
static int fits(const struct pairwise_coupling *k, const float *matrix, const float *p, float *products, float *total) {
    const int classes = k->classes;
    int is_done = 1;
    *total = 0;
    for (int i = 0; i < classes; i++) {
        products[i] = 0;
        for (int j = 0; j < classes; j++) products[i] += matrix[i * classes + j] * p[j];
        *total += p[i] * products[i];
    }
    for (int i = 0; i < classes; i++) is_done = is_done && fabsf(products[i] - *total) < k->precision;
    return is_done;
}

void KERNEL(const struct pairwise_coupling *k) {
    const int classes = k->classes;
    float *const matrix = k->work, *const products = k->work + classes * classes;
    for (int row = 0; row < k->rows; row++) {
        float *const p = k->y + row * k->y_step, total;
        set_matrix(k, k->x + row * k->x_step, matrix);
        for (int i = 0; i < classes; i++) p[i] = 1.0f / (float)classes;
        for (int round = 0; round < k->rounds && !fits(k, matrix, p, products, &total); round++) {
            for (int i = 0; i < classes; i++) {
                const float own = matrix[i * classes + i], step = (total - products[i]) / own;
                p[i] += step;
                total = (total + step * (step * own + 2 * products[i])) / (1 + step) / (1 + step);
                for (int j = 0; j < classes; j++) {
                    products[j] = (products[j] + step * matrix[i * classes + j]) / (1 + step);
                    p[j] = p[j] / (1 + step);
                }
            }
        }
    }
}
