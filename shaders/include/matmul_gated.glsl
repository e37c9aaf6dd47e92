// The epilogue of gated products (src/gpu/matmul/gated.h).
#ifndef TSR_MATMUL_GATED_GLSL
#define TSR_MATMUL_GATED_GLSL

#include "include/matmul_common.glsl"

// Stores act(alpha·gate + bias) · (alpha·up + bias), where the second bias is n columns after the first.
void mm_store_gated(mm_block block, uint row, uint col, float gate, float up)
{
    uint y_at = row * p.y_row + col * p.y_col, bias_at = row * p.bias_row + col * p.bias_col;
    precise float factor = p.alpha * up;
    if ((MM_MODE & TSR_MM_BIAS) != 0)
        factor += tsr_load_float(block.bias, bias_at + p.n * p.bias_col, mm_bias_dtype());
    tsr_store_float(block.y, y_at, mm_y_dtype(), mm_value(block, y_at, bias_at, gate) * factor);
}

#endif
