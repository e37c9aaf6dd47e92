/* Embedding on Mesa's CPU driver with shaders/cpu_drivers/embedding_vectors.comp, for matrices that
 * have rows without gaps and the same dtype. */
#include "shaders/params/embedding_vectors.h"
#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/vectors.h"

enum {
    /* Shaders split an index into digits of this number of bits and look each up in the push
     * constant identity[], where identity[i] is i (lavapipe.glsl). */
    DIGIT_BITS = 4,
};

/* Returns the largest alignment, up to 8 bytes, that all rows have. */
static uint32_t alignment_of(const tsr_tensor *matrix)
{
    return tsr__vectors_common(tsr__tensor_address(matrix) | tsr__stride_bytes(matrix, 0));
}

static uint32_t vectors_of(const tsr_tensor *matrix)
{
    uint64_t size = tsr_dtype_size(matrix->layout.dtype);
    return (uint32_t)((uint64_t)matrix->layout.shape[1] * size / TSR_VECTOR_BYTES);
}

static bool rows_suit(const tsr_tensor *matrix)
{
    const tsr_layout *layout = &matrix->layout;
    const tsr_device *device = matrix->buffer->device;
    uint64_t row_bytes = (uint64_t)layout->shape[1] * tsr_dtype_size(layout->dtype);

    return layout->strides[1] == 1 && row_bytes % TSR_VECTOR_BYTES == 0 &&
           vectors_of(matrix) >= device->info.subgroup_size &&
           tsr__stride_bytes(matrix, 0) <= UINT32_MAX &&
           alignment_of(matrix) >= tsr__vectors_least_alignment(device);
}

static bool suits(const tsr_tensor *y, const tsr_tensor *table, const tsr_tensor *indices)
{
    return tsr__vectors_suit(y->buffer->device) && y->layout.dtype == table->layout.dtype &&
           rows_suit(y) && rows_suit(table) && table->layout.shape[0] > 0 &&
           tsr_layout_count(&y->layout) >= TSR__MIN_VECTORS &&
           tsr__stride_bytes(indices, 0) <= UINT32_MAX;
}

tsr_status tsr__cpu_embedding(tsr__dispatches *list, const tsr_tensor *y, const tsr_tensor *table,
                              const tsr_tensor *indices, int64_t first, bool *done)
{
    *done = suits(y, table, indices);
    if (!*done)
        return TSR_OK;
    const uint32_t lanes = y->buffer->device->info.subgroup_size, vectors = vectors_of(y);
    uint32_t units = TSR__VECTORS_LANE;
    while (units * lanes > vectors)
        units /= 2;
    struct tsr_embedding_vectors_push push = {
        .identity = {TSR_IDENTITY_16},
        .table = tsr__tensor_address(table),
        .table_stride = (uint32_t)tsr__stride_bytes(table, 0),
        .indices_stride = (uint32_t)tsr__stride_bytes(indices, 0),
        .y_stride = (uint32_t)tsr__stride_bytes(y, 0),
        .vectors = vectors,
        .across = tsr__div_up_u32(vectors, units * lanes),
        .first = (uint32_t)first,
        .here = (uint32_t)table->layout.shape[0],
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_EMBEDDING_VECTORS,
        .spec_count = 7,
        .spec = {TSR__VECTORS_SUBGROUPS * lanes, lanes, units, alignment_of(table), alignment_of(y),
                 (uint32_t)tsr_dtype_size(indices->layout.dtype),
                 tsr__vectors_digits(push.here - 1, DIGIT_BITS)},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {0, 1, 1},
        .access_count = 3,
        .access = {tsr__read_of(table), tsr__write_of(y), tsr__read_of(indices)},
    };

    tsr__walk_divisor(push.across, &push.magic, &push.shift);
    const int64_t rows = y->layout.shape[0], step = TSR__VECTORS_MAX_BLOCKS / push.across;
    for (int64_t from = 0; from < rows; from += step) {
        push.indices = tsr__tensor_address(indices) + (uint64_t)from * push.indices_stride;
        push.y = tsr__tensor_address(y) + (uint64_t)from * push.y_stride;
        push.rows = (uint32_t)(rows - from < step ? rows - from : step);
        dispatch.groups[0] = tsr__div_up_u32(push.rows * push.across, TSR__VECTORS_SUBGROUPS);
        TSR__TRY(tsr__dispatches_add(list, &dispatch));
    }
    return TSR_OK;
}
