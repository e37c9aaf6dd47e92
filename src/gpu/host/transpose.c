/* Transposes squares of elements, each row of which is a vector of 16 bytes. One pass interleaves
 * each row of the upper half with the row at the same position of the lower half. This rotates the
 * bits of every element's index (row · edge + column) by one, so log2(edge) passes swap row and
 * column. */
#include "gpu/host/transpose.h"

#include <string.h>

enum {
    VECTOR_BYTES = 16,
};

#if defined(__clang__)
#define SHUFFLE(number, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(number, a, b, ...) __builtin_shuffle(a, b, (vector_##number){__VA_ARGS__})
#endif

#define SQUARE(number, edge, LOW, HIGH)                                                            \
    typedef number vector_##number __attribute__((vector_size(VECTOR_BYTES)));                     \
    static void square_##number(char *to, uint64_t to_pitch, const char *from,                     \
                                uint64_t from_pitch)                                               \
    {                                                                                              \
        vector_##number line[2][edge];                                                             \
        int now = 0;                                                                               \
        for (uint64_t i = 0; i < (edge); i++)                                                      \
            memcpy(&line[0][i], from + i * from_pitch, VECTOR_BYTES);                              \
        for (int width = 1; width < (edge); width *= 2) {                                          \
            for (uint64_t i = 0; i < (edge) / 2; i++) {                                            \
                const vector_##number a = line[now][i], b = line[now][i + (edge) / 2];             \
                line[1 - now][2 * i] = SHUFFLE(number, a, b, LOW);                                 \
                line[1 - now][2 * i + 1] = SHUFFLE(number, a, b, HIGH);                            \
            }                                                                                      \
            now = 1 - now;                                                                         \
        }                                                                                          \
        for (uint64_t i = 0; i < (edge); i++)                                                      \
            memcpy(to + i * to_pitch, &line[now][i], VECTOR_BYTES);                                \
    }
#define LOW8 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH8 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW16 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH16 4, 12, 5, 13, 6, 14, 7, 15
#define LOW32 0, 4, 1, 5
#define HIGH32 2, 6, 3, 7
#define LOW64 0, 2
#define HIGH64 1, 3
SQUARE(uint8_t, 16, LOW8, HIGH8)
SQUARE(uint16_t, 8, LOW16, HIGH16)
SQUARE(uint32_t, 4, LOW32, HIGH32)
SQUARE(uint64_t, 2, LOW64, HIGH64)

/* Transposes the complete squares first, then the remaining elements one by one. Squares are
 * processed column by column: all rows of a few columns come before the next columns, so that each
 * cache line of `from` is used completely before others are read. */
#define TRANSPOSE(number)                                                                          \
    static void transpose_##number(char *to, uint64_t to_pitch, const char *from,                  \
                                   uint64_t from_pitch, uint32_t rows, uint32_t columns)           \
    {                                                                                              \
        const uint64_t bytes = sizeof(number), edge = VECTOR_BYTES / bytes;                        \
        const uint64_t whole_rows = rows - rows % edge, whole_columns = columns - columns % edge;  \
        for (uint64_t column = 0; column < whole_columns; column += edge)                          \
            for (uint64_t row = 0; row < whole_rows; row += edge)                                  \
                square_##number(to + row * to_pitch + column * bytes, to_pitch,                    \
                                from + column * from_pitch + row * bytes, from_pitch);             \
        for (uint64_t row = 0; row < rows; row++)                                                  \
            for (uint64_t column = row < whole_rows ? whole_columns : 0; column < columns;         \
                 column++)                                                                         \
                memcpy(to + row * to_pitch + column * bytes,                                       \
                       from + column * from_pitch + row * bytes, bytes);                           \
    }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

void tsr__host_transpose(char *to, uint64_t to_pitch, const char *from, uint64_t from_pitch,
                         uint32_t rows, uint32_t columns, uint32_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        transpose_uint8_t(to, to_pitch, from, from_pitch, rows, columns);
        break;
    case 2:
        transpose_uint16_t(to, to_pitch, from, from_pitch, rows, columns);
        break;
    case 4:
        transpose_uint32_t(to, to_pitch, from, from_pitch, rows, columns);
        break;
    default:
        transpose_uint64_t(to, to_pitch, from, from_pitch, rows, columns);
    }
}
