#include "gpu/matmul/tuning/shape_class.h"

#include "gpu/matmul/common/problem.h"
#include "gpu/memory/tensor.h"
#include "shaders/params/matmul.h"

_Static_assert(TSR__FORM_ANY == TSR_MM_LOAD_SCALAR && TSR__FORM_VEC_K == TSR_MM_LOAD_VEC_K &&
                   TSR__FORM_VEC_LINE == TSR_MM_LOAD_VEC_LINE,
               "the first forms are the loads");

/* The number of bits of each field. The last field has the lowest bits. */
#define DTYPE_BITS 4
#define FORM_BITS 3
#define FLAG_BITS 1
#define SIZE_BITS 6

static uint32_t log2_up(int64_t size)
{
    uint32_t bits = 0;
    while (bits < 63 && (INT64_C(1) << bits) < size)
        bits++;
    return bits;
}

static tsr__matmul_form form_of(uint32_t load, int64_t line, int64_t k)
{
    if (load != TSR_MM_LOAD_SCALAR)
        return (tsr__matmul_form)load;
    return k == 1 ? TSR__FORM_K : line == 1 ? TSR__FORM_LINE : TSR__FORM_ANY;
}

bool tsr__shape_class_of(const tsr__matmul_problem *p, tsr__shape_class *out)
{
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->batch_count < 1)
        return false;
    *out = (tsr__shape_class){
        .a_dtype = p->a.dtype,
        .b_dtype = p->b.dtype,
        .y_dtype = p->y.dtype,
        .a_form = form_of(tsr__matmul_a_tile_load(p, 4), p->a.row, p->a.col),
        .b_form = form_of(tsr__matmul_b_tile_load(p, 4), p->b.col, p->b.row),
        .y_rows = p->y.col == 1,
        .epilogue = p->has_bias || p->accumulate || p->alpha != 1 || p->activation != TSR_ACT_NONE,
        .m = log2_up(p->m),
        .n = log2_up(p->n),
        .k = log2_up(p->k),
        .batch = log2_up(p->batch_count),
    };
    return true;
}

static void append_bits(uint64_t *packed, int bits, uint64_t value)
{
    *packed = *packed << bits | value;
}

uint64_t tsr__shape_class_pack(const tsr__shape_class *c)
{
    uint64_t packed = 0;
    append_bits(&packed, DTYPE_BITS, (uint64_t)c->a_dtype);
    append_bits(&packed, DTYPE_BITS, (uint64_t)c->b_dtype);
    append_bits(&packed, DTYPE_BITS, (uint64_t)c->y_dtype);
    append_bits(&packed, FORM_BITS, (uint64_t)c->a_form);
    append_bits(&packed, FORM_BITS, (uint64_t)c->b_form);
    append_bits(&packed, FLAG_BITS, c->y_rows);
    append_bits(&packed, FLAG_BITS, c->epilogue);
    append_bits(&packed, SIZE_BITS, c->m);
    append_bits(&packed, SIZE_BITS, c->n);
    append_bits(&packed, SIZE_BITS, c->k);
    append_bits(&packed, SIZE_BITS, c->batch);
    return packed;
}

static uint32_t take(uint64_t *packed, int bits)
{
    uint32_t value = (uint32_t)(*packed & ((UINT64_C(1) << bits) - 1));
    *packed >>= bits;
    return value;
}

bool tsr__shape_class_unpack(uint64_t packed, tsr__shape_class *out)
{
    const uint32_t largest = 31; /* log2 of TSR__MATMUL_MAX_SIZE, rounded up */
    tsr__shape_class c;
    c.batch = take(&packed, SIZE_BITS);
    c.k = take(&packed, SIZE_BITS);
    c.n = take(&packed, SIZE_BITS);
    c.m = take(&packed, SIZE_BITS);
    c.epilogue = take(&packed, FLAG_BITS);
    c.y_rows = take(&packed, FLAG_BITS);
    uint32_t b_form = take(&packed, FORM_BITS), a_form = take(&packed, FORM_BITS);
    c.y_dtype = (tsr_dtype)take(&packed, DTYPE_BITS);
    c.b_dtype = (tsr_dtype)take(&packed, DTYPE_BITS);
    c.a_dtype = (tsr_dtype)take(&packed, DTYPE_BITS);
    if (packed != 0 || c.m > largest || c.n > largest || c.k > largest ||
        a_form >= TSR__FORM_COUNT || b_form >= TSR__FORM_COUNT || !tsr__dtype_is_float(c.a_dtype) ||
        !tsr__dtype_is_float(c.b_dtype) || !tsr__dtype_is_float(c.y_dtype))
        return false;
    c.a_form = (tsr__matmul_form)a_form;
    c.b_form = (tsr__matmul_form)b_form;
    *out = c;
    return true;
}
