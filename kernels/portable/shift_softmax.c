/* y = inverse of the sum >> octaves(max - x): a softmax by powers of two, with a maximum that grows group by group.
 *
 * x and y are rows with dense columns, any strides along five more axes. An element is read three times, with two
 * shifts: instructions bound it.
 */
#include "shift_softmax.h"

#include "loops.h"

/* A distance from the maximum in octaves of the result: 32 steps halve it. */
static inline int octaves(int distance) {
    return distance < -16 ? 0 : (distance + 16) >> 5;
}

void KERNEL(const struct shift_softmax *k) {
    const int columns = k->extent[LAST], group = k->group;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        int max = -128;
        int32_t sum = 0;
        for (int first = 0; first + group <= columns; first += group) {
            int largest = max;
            for (int i = 0; i < group; i++) largest = x[first + i] > largest ? x[first + i] : largest;
            sum >>= octaves(largest - max);
            max = largest;
            for (int i = 0; i < group; i++) sum += 256 >> octaves(max - x[first + i]);
        }
        const int32_t inverse = k->numerator / (sum ? sum : 1);
        for (int i = 0; i < columns; i++) y[i] = (Y_T)(inverse >> octaves(max - x[i]));
    } while (next_row(index, k->extent));
}
