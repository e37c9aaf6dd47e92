/* Cases of the operations on a shard of a vocabulary: embedding, and cross-entropy of divided
 * classes. */
#include "gpu/internal.h"

#include <math.h>

#include "gpu/checks/cases.h"
#include "gpu/ops/common/segments.h"

/* This rank's shard of the vocabulary has HERE indices from FIRST on. The tested indices are in
 * this shard, before it or after it. */
enum { FIRST = 10, HERE = 6, WIDTH = 35, ROWS = 9 };
static const int32_t indices[ROWS] = {11, 15, 10, 9, 11, 16, 14, 11, 10};

static bool is_here(int32_t index)
{
    return index >= FIRST && index < FIRST + HERE;
}

tsr_status tsr__case_embedding(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(HERE, WIDTH)));
    TSR__TRY(tsr__case_indices(c, ROWS, indices));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, WIDTH)));
    for (int i = 0; i < ROWS * WIDTH; i++)
        if (is_here(indices[i / WIDTH]))
            c->value[2][i] = c->value[0][(indices[i / WIDTH] - FIRST) * WIDTH + i % WIDTH];
    return tsr__embedding(c->stream, c->tensor[2], c->tensor[0], c->tensor[1], FIRST);
}

tsr_status tsr__case_embedding_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, WIDTH)));
    TSR__TRY(tsr__case_indices(c, ROWS, indices));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(HERE, WIDTH)));
    for (int i = 0; i < ROWS * WIDTH; i++)
        if (is_here(indices[i / WIDTH]))
            c->value[2][(indices[i / WIDTH] - FIRST) * WIDTH + i % WIDTH] += c->value[0][i];
    return tsr__embedding_grad(c->stream, c->tensor[2], c->tensor[0], c->tensor[1], FIRST, false);
}

/* Cross-entropy -------------------------------------------------------------------------------- */

enum { LABELS = 5, CLASSES = 71, OTHERS = 4 /* classes of the other shard, which come first */ };
/* the number of classes in the case whose only row is divided into segments */
enum { MANY_CLASSES = 16391 };
static const int32_t labels[LABELS] = {4, 74, 0, 3, 40};

/* The logit of a class of the other shard; no tensor contains these logits. */
static double other_logit(int row, int class)
{
    return (double)((row * 5 + class * 3) % 9 - 4) / 4;
}

static double logit(const tsr__case *c, int classes, int row, int class)
{
    return class < OTHERS ? other_logit(row, class) : c->value[0][row * classes + class - OTHERS];
}

/* Computes the statistics (see tsr__cross_entropy_shard_stats) of classes `from` to `to` - 1. */
static void find_stats(const tsr__case *c, int rows, int classes, int from, int to, double *stats)
{
    for (int r = 0; r < rows; r++) {
        double *largest = stats + r, *sum = stats + rows + r;
        *largest = -INFINITY;
        *sum = 0;
        for (int i = from; i < to; i++)
            *largest = fmax(*largest, logit(c, classes, r, i));
        for (int i = from; i < to; i++)
            *sum += exp(logit(c, classes, r, i) - *largest);
        stats[2 * rows + r] =
            labels[r] >= from && labels[r] < to ? logit(c, classes, r, labels[r]) : 0;
    }
}

/* Tests the statistics of this shard, and the results that are computed from statistics of both
 * shards, which the host provides. */
static tsr_status cross_entropy_shard(tsr__case *c, tsr_dtype dtype, int rows, int classes)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(rows, classes)));
    TSR__TRY(tsr__case_indices(c, rows, labels));
    find_stats(c, rows, classes, 0, OTHERS, c->value[2]);
    find_stats(c, rows, classes, OTHERS, OTHERS + classes, c->value[2] + (ptrdiff_t)3 * rows);
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_3(2, 3, rows)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(3, rows)));
    find_stats(c, rows, classes, OTHERS, OTHERS + classes, c->value[3]);
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(rows)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(rows, classes)));
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int i = 0; i < OTHERS + classes; i++)
            sum += exp(logit(c, classes, r, i));
        c->value[4][r] = log(sum) - logit(c, classes, r, labels[r]);
        for (int i = 0; i < classes; i++)
            c->value[5][r * classes + i] =
                exp(logit(c, classes, r, OTHERS + i)) / sum - (OTHERS + i == labels[r]);
    }
    TSR__TRY(tsr__cross_entropy_shard_stats(c->stream, c->tensor[3], c->tensor[0], c->tensor[1],
                                            OTHERS));
    return tsr__cross_entropy_shard(c->stream, c->tensor[4], c->tensor[5], c->tensor[0],
                                    c->tensor[1], c->tensor[2], OTHERS, OTHERS + classes, 1);
}

tsr_status tsr__case_cross_entropy_shard(tsr__case *c, tsr_dtype dtype)
{
    return cross_entropy_shard(c, dtype, LABELS, CLASSES);
}

tsr_status tsr__case_entropy_shard_divided(tsr__case *c, tsr_dtype dtype)
{
    if (!tsr__segments_suit(tsr_stream_device(c->stream), 1, MANY_CLASSES))
        return TSR_ERR_UNSUPPORTED;
    return cross_entropy_shard(c, dtype, 1, MANY_CLASSES);
}
