#include "tensor/pieces.h"

#include "base/checked.h"

#define PIECE_COUNT_LIMIT (UINT64_C(1) << 30)
#define PIECE_BYTES_LIMIT (UINT64_C(1) << 31)

/* Compares two dimensions. The result is negative if the loop over `a` belongs outside the loop
 * over `b`, and positive if it belongs inside. The strides of operand 0 decide. If they are equal,
 * those of the next operand decide, and so on. */
static int order_of(const tsr__pieces *walk, int a, int b)
{
    for (int op = 0; op < walk->operands; op++) {
        /* A dimension with the stride 0 repeats elements. Here, 0 − 1 wraps to the largest value,
         * so that the dimension becomes an outer one, and the inner ones stay those with
         * neighbouring elements. */
        uint64_t a_stride = (uint64_t)walk->strides[op][a] - 1;
        uint64_t b_stride = (uint64_t)walk->strides[op][b] - 1;
        if (a_stride != b_stride)
            return a_stride > b_stride ? -1 : 1;
    }
    return 0;
}

static void swap(int64_t *a, int64_t *b)
{
    int64_t old = *a;
    *a = *b;
    *b = old;
}

static void swap_dims(tsr__pieces *walk, int a, int b)
{
    swap(&walk->shape[a], &walk->shape[b]);
    swap(&walk->index_strides[a], &walk->index_strides[b]);
    for (int op = 0; op < walk->operands; op++)
        swap(&walk->strides[op][a], &walk->strides[op][b]);
}

/* Sorts the dimensions, outermost first. The sort is stable, so that the walk is in row-major order
 * unless the strides require another order. */
static void sort_dims(tsr__pieces *walk)
{
    for (int i = 1; i < walk->ndim; i++) {
        for (int j = i; j > 0 && order_of(walk, j, j - 1) < 0; j--)
            swap_dims(walk, j, j - 1);
    }
}

static bool continues(int64_t outer_stride, int64_t inner_stride, int64_t inner_size)
{
    return (uint64_t)outer_stride == (uint64_t)inner_stride * (uint64_t)inner_size;
}

/* Returns true if `outer` and `inner` can be merged: in every operand, and in the row-major index,
 * their elements are at the same positions as those of a single dimension. */
static bool mergeable(const tsr__pieces *walk, int outer, int inner)
{
    int64_t size = walk->shape[inner];
    for (int op = 0; op < walk->operands; op++) {
        if (!continues(walk->strides[op][outer], walk->strides[op][inner], size))
            return false;
    }
    return continues(walk->index_strides[outer], walk->index_strides[inner], size);
}

static void merge_dims(tsr__pieces *walk)
{
    int kept = 0;
    for (int i = 1; i < walk->ndim; i++) {
        bool merge = mergeable(walk, kept, i);
        int64_t outer_size = merge ? walk->shape[kept] : 1;
        swap_dims(walk, merge ? kept : ++kept, i);
        walk->shape[kept] *= outer_size;
    }
    if (walk->ndim > 0)
        walk->ndim = kept + 1;
}

/* Chooses the dimensions in which a piece extends. One is the innermost dimension, so that a piece
 * contains neighbouring elements. The others are the longest of the remaining dimensions. */
static void choose_dims(const tsr__pieces *walk, bool *chosen)
{
    for (int n = 0; n < TSR__PIECE_DIMS && n < walk->ndim; n++) {
        int best = walk->ndim - 1;
        for (int i = walk->ndim - 1; i >= 0 && n > 0; i--) {
            if (!chosen[i] && (chosen[best] || walk->shape[i] > walk->shape[best]))
                best = i;
        }
        chosen[best] = true;
    }
}

/* Chooses the size of a piece in each dimension: as large as the limits allow, starting with the
 * innermost dimension. */
static void choose_steps(tsr__pieces *walk, const tsr_layout *const *layouts, uint64_t max_count)
{
    bool chosen[TSR_MAX_DIMS] = {false};
    choose_dims(walk, chosen);

    uint64_t count_left = max_count == 0 ? PIECE_COUNT_LIMIT : max_count;
    count_left = tsr__min_u64(count_left, PIECE_COUNT_LIMIT);
    /* for each operand: how much farther from its first element the piece's last one may be, in
     * elements; each dimension that joins the piece uses some of this */
    uint64_t reach_left[TSR__PIECE_OPERANDS];
    for (int op = 0; op < walk->operands; op++)
        reach_left[op] = PIECE_BYTES_LIMIT / tsr_dtype_size(layouts[op]->dtype) - 1;

    for (int i = walk->ndim - 1; i >= 0; i--) {
        uint64_t step = 1;
        if (chosen[i]) {
            step = tsr__min_u64((uint64_t)walk->shape[i], count_left);
            for (int op = 0; op < walk->operands; op++) {
                if (walk->strides[op][i] > 0)
                    step = tsr__min_u64(step, reach_left[op] / (uint64_t)walk->strides[op][i] + 1);
            }
        }
        for (int op = 0; op < walk->operands; op++)
            reach_left[op] -= (step - 1) * (uint64_t)walk->strides[op][i];
        count_left /= step;
        walk->step[i] = (int64_t)step;
    }
}

void tsr__pieces_init(tsr__pieces *walk, int operands, const tsr_layout *const *layouts,
                      uint64_t max_count)
{
    *walk = (tsr__pieces){.operands = operands, .done = tsr_layout_count(layouts[0]) == 0};
    if (walk->done)
        return;

    int64_t index_stride = 1;
    int64_t index_strides[TSR_MAX_DIMS];
    for (int i = layouts[0]->ndim - 1; i >= 0; i--) {
        index_strides[i] = index_stride;
        index_stride *= layouts[0]->shape[i];
    }
    for (int i = 0; i < layouts[0]->ndim; i++) {
        if (layouts[0]->shape[i] == 1)
            continue;
        walk->shape[walk->ndim] = layouts[0]->shape[i];
        walk->index_strides[walk->ndim] = index_strides[i];
        for (int op = 0; op < operands; op++)
            walk->strides[op][walk->ndim] = layouts[op]->strides[i];
        walk->ndim++;
    }
    for (int op = 0; op < operands; op++)
        walk->offset[op] = layouts[op]->offset;

    sort_dims(walk);
    merge_dims(walk);
    choose_steps(walk, layouts, max_count);
}

/* Makes the piece that starts at the walk's position. The piece has only those dimensions in which
 * its size is more than 1. */
static void cut_piece(const tsr__pieces *walk, tsr__piece *piece)
{
    *piece = (tsr__piece){.count = 1, .shape = {1, 1, 1, 1}};
    for (int op = 0; op < walk->operands; op++)
        piece->offset[op] = walk->offset[op];

    for (int i = 0; i < walk->ndim; i++) {
        for (int op = 0; op < walk->operands; op++)
            piece->offset[op] += walk->position[i] * walk->strides[op][i];
        piece->index += walk->position[i] * walk->index_strides[i];

        int64_t left = walk->shape[i] - walk->position[i];
        int64_t size = left < walk->step[i] ? left : walk->step[i];
        if (size == 1)
            continue;
        piece->shape[piece->ndim] = (uint32_t)size;
        piece->count *= (uint32_t)size;
        for (int op = 0; op < walk->operands; op++)
            piece->strides[op][piece->ndim] = (uint32_t)walk->strides[op][i];
        piece->index_strides[piece->ndim] = walk->index_strides[i];
        piece->ndim++;
    }
    if (piece->ndim == 0) /* the piece is a single element; give it one dimension */
        piece->ndim = 1;
}

bool tsr__pieces_next(tsr__pieces *walk, tsr__piece *piece)
{
    if (walk->done)
        return false;
    cut_piece(walk, piece);

    int i = walk->ndim - 1;
    for (; i >= 0; i--) {
        walk->position[i] += walk->step[i];
        if (walk->position[i] < walk->shape[i])
            break;
        walk->position[i] = 0;
    }
    walk->done = i < 0;
    return true;
}
