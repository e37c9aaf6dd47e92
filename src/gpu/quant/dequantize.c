/* Records the dispatches of dequantize.comp, and describes block formats to shaders. */
#include "gpu/quant/dequantize.h"

#include "base/checked.h"
#include "quant/block_format.h"
#include "shaders/params/rows.h"

#define WORKGROUP 64

_Static_assert(TSR__QUANT_LINEAR == TSR_QUANT_LINEAR && TSR__QUANT_SIGNED == TSR_QUANT_SIGNED &&
                   TSR__QUANT_NL == TSR_QUANT_NL && TSR__QUANT_E2M1 == TSR_QUANT_E2M1 &&
                   TSR__QUANT_IQ2_XXS == TSR_QUANT_IQ2_XXS &&
                   TSR__QUANT_IQ2_XS == TSR_QUANT_IQ2_XS && TSR__QUANT_IQ2_S == TSR_QUANT_IQ2_S &&
                   TSR__QUANT_IQ3_XXS == TSR_QUANT_IQ3_XXS && TSR__QUANT_IQ3_S == TSR_QUANT_IQ3_S &&
                   TSR__QUANT_TERNARY == TSR_QUANT_TERNARY,
               "shaders and C number the codes differently");
_Static_assert(TSR__QUANT_F16 == TSR_QUANT_F16 && TSR__QUANT_F16_MIN == TSR_QUANT_F16_MIN &&
                   TSR__QUANT_E8M0 == TSR_QUANT_E8M0 && TSR__QUANT_UE4M3 == TSR_QUANT_UE4M3 &&
                   TSR__QUANT_4_4 == TSR_QUANT_4_4 && TSR__QUANT_6_6 == TSR_QUANT_6_6 &&
                   TSR__QUANT_S6 == TSR_QUANT_S6 && TSR__QUANT_S6_SPLIT == TSR_QUANT_S6_SPLIT &&
                   TSR__QUANT_S8 == TSR_QUANT_S8 && TSR__QUANT_ODD == TSR_QUANT_ODD &&
                   TSR__QUANT_ODD_HIGH == TSR_QUANT_ODD_HIGH,
               "shaders and C number the scales differently");

static uint32_t plane_word(const tsr__quant_plane *plane)
{
    return plane->bits == 0
               ? 0
               : plane->offset | (uint32_t)plane->bits << 8 | (uint32_t)plane->run << 16;
}

void tsr__quant_describe(tsr_dtype dtype, uint32_t spec[TSR_QUANT_SPECS])
{
    const tsr__quant_format *format = tsr__quant_format_of(dtype);
    spec[0] = plane_word(&format->low);
    spec[1] = plane_word(&format->high);
    spec[2] = (uint32_t)format->format.block_count | (uint32_t)format->format.block_bytes << 16;
    spec[3] = format->sub | (uint32_t)format->bias << 8 | (uint32_t)format->code << 16 |
              (uint32_t)format->scales << 24;
    spec[4] = format->factor_offset | (uint32_t)format->min_offset << 8 |
              (uint32_t)format->scales_offset << 16;
}

bool tsr__quant_is_scaled_words(tsr_dtype dtype)
{
    const tsr__quant_format *f = tsr__quant_format_of(dtype);
    const bool planes = f->high.bits == 0 ? f->low.offset == 2
                                          : f->high.offset == 2 && f->high.bits == 1 &&
                                                f->high.run == 1 && f->low.offset == 6;
    return f->format.block_count == 32 && f->format.block_bytes % 4 == 2 &&
           f->scales == TSR__QUANT_F16 && f->factor_offset == 0 && planes &&
           (f->code == TSR__QUANT_LINEAR || f->code == TSR__QUANT_SIGNED);
}

tsr__quant_large tsr__quant_large_planes(tsr_dtype dtype)
{
    const tsr__quant_format *f = tsr__quant_format_of(dtype);
    if (f->format.block_count != 256 || f->low.bits != 4 || f->low.run < 32 ||
        f->code != TSR__QUANT_LINEAR)
        return TSR__QUANT_NOT_LARGE;
    if (f->scales == TSR__QUANT_6_6 && f->factor_offset == 0 && f->min_offset == 2 &&
        f->scales_offset == 4 && (f->format.block_bytes | f->low.offset | f->high.offset) % 16 == 0)
        return TSR__QUANT_VECTORS;
    return f->scales == TSR__QUANT_S8 && f->sub == 16 && f->high.run == 32 ? TSR__QUANT_STAGED
                                                                           : TSR__QUANT_NOT_LARGE;
}

bool tsr__quant_has_chunks(tsr_dtype dtype)
{
    return tsr__quant_is_scaled_words(dtype) ||
           tsr__quant_large_planes(dtype) != TSR__QUANT_NOT_LARGE;
}

/* The number of elements that one invocation converts: those whose low bits fill a 32-bit word. */
static uint32_t unit_of(tsr_dtype dtype)
{
    return 4 * (8u / tsr__quant_format_of(dtype)->low.bits);
}

typedef struct conversion {
    const tsr_tensor *y, *x, *indices; /* indices may be NULL */
    int64_t first;
    /* the number of leading (outer) dimensions, for each index of which there are dispatches of
     * their own */
    int outer;
} conversion;

/* The form (TSR_ROW_…) of the rows of y. The length of rows is a multiple of 4, because it is a
 * multiple of a block's length. */
static uint32_t form_of(const tsr_tensor *y)
{
    const tsr_layout *l = &y->layout;
    const int last = l->ndim - 1;
    const uint64_t size = tsr_dtype_size(l->dtype), limit = UINT64_C(1) << 31;
    uint64_t misaligned = (uint64_t)l->offset * size;
    if ((uint64_t)l->strides[last] > limit / size / (uint64_t)l->shape[last])
        return TSR_ROW_WIDE;
    for (int i = 0; i < last; i++)
        if (l->shape[i] > 1)
            misaligned |= (uint64_t)l->strides[i] * size;
    return l->strides[last] == 1 && misaligned % 4 == 0 ? TSR_ROW_DENSE4 : TSR_ROW_STRIDED;
}

/* Records the dispatches for the rows at one index of the outer dimensions. */
static tsr_status record_rows(tsr_stream *stream, const conversion *c, uint64_t x, uint64_t y)
{
    const tsr_layout *l = &c->y->layout, *from = &c->x->layout;
    const int last = l->ndim - 1;
    const uint64_t size = tsr_dtype_size(l->dtype);
    struct tsr_dequantize_params push = {
        .x = x,
        .y = y,
        .size = {1, 1},
        .y_step = (uint64_t)l->strides[last] * size,
        .width = (uint32_t)l->shape[last],
    };
    uint64_t rows = 1;
    for (int i = 0; i < 3; i++) {
        const int dim = last - 3 + i;
        if (dim < c->outer)
            continue;
        push.y_strides[i] = (uint64_t)l->strides[dim] * size;
        push.x_strides[i] = tsr__dtype_bytes(from->dtype, (uint64_t)from->strides[dim]);
        if (i > 0)
            push.size[i - 1] = (uint32_t)l->shape[dim];
        rows *= (uint64_t)l->shape[dim];
    }
    if (c->indices) {
        push.first = (uint32_t)c->first;
        push.here = (uint32_t)from->shape[0];
        push.indices = tsr__tensor_address(c->indices);
        push.index_bytes = (uint32_t)tsr_dtype_size(c->indices->layout.dtype);
        push.indices_stride = (uint64_t)c->indices->layout.strides[0] * push.index_bytes;
    }

    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_DEQUANTIZE,
        .spec_count = TSR_QUANT_SPECS + 3,
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = c->indices ? 3 : 2,
        .access = {tsr__write_of(c->y), tsr__read_of(c->x)},
    };
    if (c->indices) {
        dispatch.access[2] = tsr__read_of(c->indices);
        dispatch.read_bytes =
            (double)(rows * (tsr__dtype_bytes(from->dtype, push.width) + push.index_bytes));
    }
    tsr__quant_describe(from->dtype, dispatch.spec);
    dispatch.spec[TSR_QUANT_SPECS] = WORKGROUP;
    dispatch.spec[TSR_QUANT_SPECS + 1] = l->dtype;
    dispatch.spec[TSR_QUANT_SPECS + 2] = form_of(c->y);
    /* The number of invocations must fit 32 bits. */
    const uint64_t per_row = (uint64_t)push.width / unit_of(from->dtype);
    const uint64_t most = INT32_MAX / per_row;
    for (uint64_t row = 0; row < rows; row += most) {
        push.row_begin = (uint32_t)row;
        push.rows = (uint32_t)tsr__min_u64(most, rows - row);
        tsr__groups_for(push.rows * per_row, WORKGROUP, dispatch.groups);
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

static tsr_status record(tsr_stream *stream, void *work)
{
    const conversion *c = work;
    const tsr_layout *l = &c->y->layout, *from = &c->x->layout;
    int64_t index[TSR_MAX_DIMS] = {0};
    int dim;
    do {
        int64_t x = 0, y = 0;
        for (int i = 0; i < c->outer; i++) {
            x += index[i] * from->strides[i];
            y += index[i] * l->strides[i];
        }
        TSR__TRY(record_rows(stream, c,
                             tsr__tensor_address(c->x) + tsr__dtype_bytes(from->dtype, (uint64_t)x),
                             tsr__tensor_address(c->y) + (uint64_t)y * tsr_dtype_size(l->dtype)));
        for (dim = c->outer - 1; dim >= 0 && ++index[dim] == l->shape[dim]; dim--)
            index[dim] = 0;
    } while (dim >= 0 && !tsr__stream_in_preflight(stream));
    return TSR_OK;
}

/* The shader counts elements of rows, and rows of the inner dimensions, in 32 bits. */
static tsr_status check_sizes(const tsr_layout *l, int outer)
{
    uint64_t rows = 1;
    for (int i = outer; i < l->ndim - 1; i++)
        if (!tsr__mul_u64(rows, (uint64_t)l->shape[i], &rows) || rows > INT32_MAX)
            return tsr__fail(TSR_ERR_INVALID,
                             "copy: more than %d rows of blocks in the last dimensions", INT32_MAX);
    TSR__REQUIRE(l->shape[l->ndim - 1] <= INT32_MAX, "copy: rows of %lld elements; at most %d",
                 (long long)l->shape[l->ndim - 1], INT32_MAX);
    return TSR_OK;
}

tsr_status tsr__dequantize(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x)
{
    const int inner = 4;
    conversion c = {.y = y, .x = x, .outer = y->layout.ndim > inner ? y->layout.ndim - inner : 0};
    if (tsr_layout_count(&y->layout) == 0)
        return TSR_OK;
    TSR__TRY(check_sizes(&y->layout, c.outer));
    return tsr__stream_atomic(stream, record, &c);
}

tsr_status tsr__dequantize_rows(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *indices, int64_t first)
{
    conversion c = {.y = y, .x = x, .indices = indices, .first = first};
    if (tsr_layout_count(&y->layout) == 0)
        return TSR_OK;
    TSR__TRY(check_sizes(&y->layout, 0));
    return tsr__stream_atomic(stream, record, &c);
}
