/* Cases of packing, and of products with weights in blocks. A case computes an operation on the
 * device and, in c->value, on the host (case.h). */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "gpu/checks/cases.h"
#include "gpu/internal.h"
#include "gpu/matmul/narrowed.h"
#include "tensor/check.h"
#include "tessera/matmul.h"
#include "tessera/moe.h"
#include "tessera/ops.h"
#include "tessera/quant.h"

/* Weights in blocks ---------------------------------------------------------------------------- */

enum { COLUMNS = 5, DEPTH = 256, LONG_DEPTH = 1280, MAX_WEIGHTS = COLUMNS * LONG_DEPTH };

static tsr_status add_weights(tsr__case *c, tsr_dtype format, int columns, int depth)
{
    return tsr__case_blocks(c, format, TSR__SHAPE_2(columns, depth));
}

/* Packing and unpacking numbers for slow connections. Each block of 32 has 127/64 as its largest
 * element, so that its scale is a power of two and nothing is rounded. */
tsr_status tsr__case_pack(tsr__case *c, tsr_dtype dtype)
{
    enum { COUNT = 32 * 5 + 7 };
    tsr_tensor *packed;

    for (int i = 0; i < COUNT; i++)
        c->value[0][i] = (i % 32 == 0 ? 127 : i * 29 % 255 - 127) / 64.0;
    TSR__TRY(tsr__case_given(c, dtype, TSR__SHAPE_1(COUNT)));
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), TSR_U32,
                               TSR__SHAPE_1(tsr__packed_words(COUNT)), &packed));
    tsr__case_adopt(c, packed);
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_1(COUNT)));
    for (int i = 0; i < COUNT; i++)
        c->value[2][i] = c->value[0][i];
    TSR__TRY(tsr__pack(c->stream, packed, c->tensor[0]));
    return tsr__unpack_sum(c->stream, c->tensor[2], packed, 1);
}

/* Returns the block format, and writes the dtype of the other tensors, with which a kernel is
 * tested for `dtype`: one of the two is `dtype`. */
static tsr_dtype split(tsr_dtype dtype, tsr_dtype *floats)
{
    const bool block = tsr__dtype_is_block(dtype);

    *floats = block ? TSR_F32 : dtype;
    return block ? dtype : TSR_Q8_0;
}

/* Multiplies tensor 0, [rows,depth], by weights in blocks, [COLUMNS,depth], which this function
 * adds. */
static tsr_status multiply_blocks(tsr__case *c, tsr_dtype dtype, int rows, int depth,
                                  bool allow_int8)
{
    tsr_dtype floats;
    const tsr_dtype format = split(dtype, &floats);

    TSR__TRY(add_weights(c, format, COLUMNS, depth));
    TSR__TRY(tsr__case_output(c, floats, TSR__SHAPE_2(rows, COLUMNS)));
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < COLUMNS; n++)
            for (int k = 0; k < depth; k++)
                c->value[2][r * COLUMNS + n] +=
                    c->value[0][r * depth + k] * c->value[1][n * depth + k];
    return tsr_matmul(c->stream, c->tensor[2], c->tensor[0], c->tensor[1],
                      tsr_matmul_params(.transpose_b = true, .allow_int8 = allow_int8));
}

static tsr_status product_with_blocks(tsr__case *c, tsr_dtype dtype, int rows, int depth)
{
    tsr_dtype floats;

    split(dtype, &floats);
    TSR__TRY(tsr__case_input(c, floats, TSR__SHAPE_2(rows, depth)));
    return multiply_blocks(c, dtype, rows, depth, false);
}

tsr_status tsr__case_quant_product(tsr__case *c, tsr_dtype dtype)
{
    return product_with_blocks(c, dtype, 3, DEPTH);
}

tsr_status tsr__case_long_quant_product(tsr__case *c, tsr_dtype dtype)
{
    return product_with_blocks(c, dtype, 2, LONG_DEPTH);
}

/* The kernel rounds the first tensor to 8 bits, with a scale for each 32 elements. The largest of
 * each 32 is 127/512, so the scale is a power of two and rounding changes nothing. */
tsr_status tsr__case_int8_product(tsr__case *c, tsr_dtype dtype)
{
    enum { ROWS = 2 };
    tsr_dtype floats;

    split(dtype, &floats);
    for (int i = 0; i < ROWS * LONG_DEPTH; i++)
        c->value[0][i] = (i % 32 == 0 ? 127 : i * 29 % 255 - 127) / 512.0;
    TSR__TRY(tsr__case_given(c, floats, TSR__SHAPE_2(ROWS, LONG_DEPTH)));
    return multiply_blocks(c, dtype, ROWS, LONG_DEPTH, true);
}

tsr_status tsr__case_dequantize(tsr__case *c, tsr_dtype dtype)
{
    tsr_dtype floats;
    const tsr_dtype format = split(dtype, &floats);

    TSR__TRY(add_weights(c, format, COLUMNS, DEPTH));
    TSR__TRY(tsr__case_output(c, floats, TSR__SHAPE_2(COLUMNS, DEPTH)));
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        c->value[1][i] = c->value[0][i];
    return tsr_copy(c->stream, c->tensor[1], c->tensor[0]);
}

/* Products of each token and the matrices of two experts. */
static tsr_status grouped_blocks(tsr__case *c, tsr_dtype dtype, int tokens)
{
    enum { EXPERTS = 4, USED = 2 };
    tsr_dtype floats;
    const tsr_dtype format = split(dtype, &floats);

    TSR__TRY(tsr__case_input(c, floats, TSR__SHAPE_2(tokens, DEPTH)));
    TSR__TRY(tsr__case_blocks(c, format, TSR__SHAPE_3(EXPERTS, COLUMNS, DEPTH)));
    for (int i = 0; i < tokens * USED; i++)
        c->value[2][i] = i * 7 % 9 % EXPERTS;
    TSR__TRY(tsr__case_given(c, TSR_I32, TSR__SHAPE_2(tokens, USED)));
    TSR__TRY(tsr__case_output(c, floats, TSR__SHAPE_3(tokens, USED, COLUMNS)));
    for (int i = 0; i < tokens * USED * COLUMNS; i++) {
        const int pair = i / COLUMNS, line = (int)c->value[2][pair] * COLUMNS + i % COLUMNS;
        for (int k = 0; k < DEPTH; k++)
            c->value[3][i] += c->value[0][pair / USED * DEPTH + k] * c->value[1][line * DEPTH + k];
    }
    return tsr_matmul_grouped(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2],
                              NULL);
}

tsr_status tsr__case_grouped_blocks(tsr__case *c, tsr_dtype dtype)
{
    return grouped_blocks(c, dtype, 21);
}

tsr_status tsr__case_grouped_few_blocks(tsr__case *c, tsr_dtype dtype)
{
    return grouped_blocks(c, dtype, 3);
}

/* Rows in f32 are narrowed to f16. */
tsr_status tsr__case_grouped_coopmat_blocks(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_require_matrices(c, TSR_F16));
    return tsr__case_grouped_blocks(c, dtype);
}

static float narrow(float value, tsr_dtype dtype)
{
    return dtype == TSR_F16 ? tsr__f32_of_f16(tsr__f16_of_f32(value))
                            : tsr__f32_of_bf16(tsr__bf16_of_f32(value));
}

/* Computes a line's two terms, and returns the bits of its scale, an f32
 * (shaders/include/matmul_narrow.glsl). */
static double narrow_line(const double *line, tsr_dtype dtype, double *terms)
{
    double largest = 0;
    int exponent;

    for (int k = 0; k < DEPTH; k++)
        largest = fmax(largest, fabs(line[k]));
    (void)frexp(largest, &exponent); /* the largest element is from 2^(exponent − 1) on */
    const int shift = (dtype == TSR_F16 ? 14 : 0) - (exponent - 1);
    for (int k = 0; k < DEPTH; k++) {
        const double scaled = ldexp(line[k], shift);
        terms[k] = (double)narrow((float)scaled, dtype);
        terms[DEPTH + k] = (double)narrow((float)(scaled - terms[k]), dtype);
    }
    return ldexp(127 - shift, 23);
}

/* Narrows lines of f32 to one term, with an RMS norm or with an activation and a factor. */
static tsr_status narrow_rows(tsr__case *c, tsr_dtype dtype, bool gated)
{
    enum { LINES = 3 };
    const int64_t pitch = tsr__matmul_line_elements(DEPTH, 1);
    tsr__matmul_norm norm = {.epsilon = 1e-3F};
    tsr__matmul_gate gate = {.activation = TSR_ACT_SILU};
    tsr_tensor *lines, *view;

    if (dtype == TSR_F32)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: lines are not narrowed to f32");
    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_2(LINES, DEPTH)));
    TSR__TRY(gated ? tsr__case_input(c, TSR_F32, TSR__SHAPE_2(LINES, DEPTH))
                   : tsr__case_input(c, TSR_F32, TSR__SHAPE_1(DEPTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(LINES, DEPTH)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_2(LINES, 1)));
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), TSR_I32,
                               TSR__SHAPE_2(LINES, pitch / 2), &lines));
    tsr__case_adopt(c, lines);
    for (int r = 0; r < LINES; r++) {
        const double *x = c->value[0] + (ptrdiff_t)r * DEPTH;
        double line[DEPTH], terms[2 * DEPTH], squares = 0;
        for (int k = 0; k < DEPTH; k++)
            squares += x[k] * x[k];
        for (int k = 0; k < DEPTH; k++)
            line[k] = gated ? x[k] / (1 + exp(-x[k])) * c->value[1][r * DEPTH + k]
                            : x[k] / sqrt(squares / DEPTH + (double)norm.epsilon) * c->value[1][k];
        c->value[3][r] = narrow_line(line, dtype, terms);
        memcpy(c->value[2] + (ptrdiff_t)r * DEPTH, terms, sizeof line);
    }
    norm.weight = gate.up = c->tensor[1];
    TSR__TRY(
        tsr__matmul_narrow_lines(c->stream, &(tsr__narrow_lines){.from = c->tensor[0],
                                                                 .line_stride = DEPTH,
                                                                 .k_stride = 1,
                                                                 .lines = LINES,
                                                                 .k = DEPTH,
                                                                 .dtype = dtype,
                                                                 .terms = 1,
                                                                 .to = lines->buffer,
                                                                 .norm = gated ? NULL : &norm,
                                                                 .gate = gated ? &gate : NULL}));
    TSR__TRY(tsr_tensor_slice(lines, 1, DEPTH / 2, DEPTH / 2 + 1, 1, &view));
    tsr__case_adopt(c, view);
    TSR__TRY(tsr_copy(c->stream, c->tensor[3], view));
    tsr_tensor as_terms = *lines;
    TSR__TRY(tsr_layout_init(dtype, TSR__SHAPE_2(LINES, pitch), &as_terms.layout));
    TSR__TRY(tsr_tensor_slice(&as_terms, 1, 0, DEPTH, 1, &view));
    tsr__case_adopt(c, view);
    return tsr_copy(c->stream, c->tensor[2], view);
}

tsr_status tsr__case_narrow_norm(tsr__case *c, tsr_dtype dtype)
{
    return narrow_rows(c, dtype, false);
}

tsr_status tsr__case_narrow_gate(tsr__case *c, tsr_dtype dtype)
{
    return narrow_rows(c, dtype, true);
}

/* Narrows lines of blocks to two terms of f16 or bf16, and a scale behind them. `dtype` is a
 * block format, whose terms are then f16, or the dtype of the terms. */
tsr_status tsr__case_narrow_blocks(tsr__case *c, tsr_dtype dtype)
{
    enum { TERMS = 2 };
    tsr_device *device = tsr_stream_device(c->stream);
    const tsr_dtype terms = dtype == TSR_BF16 ? TSR_BF16 : TSR_F16;
    const tsr_dtype format = tsr__dtype_is_block(dtype) ? dtype : TSR_Q8_0;
    const int64_t pitch = tsr__matmul_line_elements(DEPTH, TERMS);
    tsr_tensor *lines, *view;

    if (dtype == TSR_F32)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: lines are not narrowed to f32");
    TSR__TRY(add_weights(c, format, COLUMNS, DEPTH));
    TSR__TRY(tsr_tensor_create(device, TSR_I32, TSR__SHAPE_2(COLUMNS, pitch / 2), &lines));
    tsr__case_adopt(c, lines);
    TSR__TRY(tsr__case_output(c, terms, TSR__SHAPE_2(COLUMNS, (int64_t)TERMS * DEPTH)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_2(COLUMNS, 1)));
    for (int i = 0; i < COLUMNS; i++)
        c->value[3][i] = narrow_line(c->value[0] + (size_t)i * DEPTH, terms,
                                     c->value[2] + (size_t)i * TERMS * DEPTH);
    TSR__TRY(tsr__matmul_narrow_lines(c->stream, &(tsr__narrow_lines){.from = c->tensor[0],
                                                                      .line_stride = DEPTH,
                                                                      .k_stride = 1,
                                                                      .lines = COLUMNS,
                                                                      .k = DEPTH,
                                                                      .dtype = terms,
                                                                      .terms = TERMS,
                                                                      .to = lines->buffer}));
    TSR__TRY(tsr_tensor_slice(lines, 1, TERMS * DEPTH / 2, TERMS * DEPTH / 2 + 1, 1, &view));
    tsr__case_adopt(c, view);
    TSR__TRY(tsr_copy(c->stream, c->tensor[3], view));
    tsr_tensor as_terms = *lines;
    TSR__TRY(tsr_layout_init(terms, TSR__SHAPE_2(COLUMNS, pitch), &as_terms.layout));
    TSR__TRY(tsr_tensor_slice(&as_terms, 1, 0, (int64_t)TERMS * DEPTH, 1, &view));
    tsr__case_adopt(c, view);
    return tsr_copy(c->stream, c->tensor[2], view);
}
