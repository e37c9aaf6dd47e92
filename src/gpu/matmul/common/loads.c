#include "gpu/matmul/common/loads.h"

#include "shaders/params/matmul.h"

/* Returns the kind of load for one operand. `line` is the stride along a's rows or b's columns, and
 * `k` is the stride along the other dimension. */
static uint32_t load_of(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t line,
                        int64_t lines, int64_t k, int64_t width)
{
    if (k == 1 && p->k % width == 0 && tsr__matmul_side_vectors(p, side, line, width))
        return width == 8 ? TSR_MM_LOAD_VEC8_K : TSR_MM_LOAD_VEC_K;
    if (line == 1 && lines % width == 0 && tsr__matmul_side_vectors(p, side, k, width))
        return width == 8 ? TSR_MM_LOAD_VEC8_LINE : TSR_MM_LOAD_VEC_LINE;
    return width == 8 ? load_of(p, side, line, lines, k, 4) : TSR_MM_LOAD_SCALAR;
}

uint32_t tsr__matmul_a_load(const tsr__matmul_problem *p, int64_t max_width)
{
    return load_of(p, &p->a, p->a.row, p->m, p->a.col, max_width);
}

uint32_t tsr__matmul_b_load(const tsr__matmul_problem *p, int64_t max_width)
{
    return load_of(p, &p->b, p->b.col, p->n, p->b.row, max_width);
}

bool tsr__matmul_side_narrow(const tsr__matmul_side *side, int64_t rows, int64_t cols)
{
    return side->row <= (int64_t)UINT32_MAX && side->col <= (int64_t)UINT32_MAX &&
           tsr__matmul_side_within(side, rows, cols);
}

bool tsr__matmul_y_narrow(const tsr__matmul_problem *p, int64_t bm, int64_t bn)
{
    int64_t m = bm < p->m ? bm : p->m, n = bn < p->n ? bn : p->n;

    return tsr__matmul_side_narrow(&p->y, m, n) && tsr__matmul_side_narrow(&p->bias, m, n);
}
