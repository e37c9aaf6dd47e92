#include "tensor/overlap.h"

#include "tensor/dtype.h"
#include "tensor/equation.h"

tsr__extent tsr__layout_extent(const tsr_layout *layout)
{
    if (tsr__dtype_is_block(layout->dtype)) {
        const tsr_layout bytes = tsr__layout_of_bytes(layout);
        return tsr__layout_extent(&bytes);
    }
    uint64_t size = tsr_dtype_size(layout->dtype);
    uint64_t first = (uint64_t)layout->offset;
    if (tsr_layout_count(layout) == 0)
        return (tsr__extent){first * size, first * size};
    uint64_t last = first;
    for (int i = 0; i < layout->ndim; i++)
        last += (uint64_t)(layout->shape[i] - 1) * (uint64_t)layout->strides[i];
    return (tsr__extent){first * size, (last + 1) * size};
}

/* Two different indices i ≠ j of a layout refer to the same element if Σ stride·(i − j) = 0. With x
 * = i − j + size − 1 this becomes Σ stride·x = Σ stride·(size − 1), where x is not negative.
 * Indices that are equal always solve this equation, so the question is whether there is a second
 * solution. */
bool tsr__layout_repeats(const tsr_layout *layout)
{
    if (tsr_layout_count(layout) <= 1)
        return false;
    tsr__equation equation = {0};
    uint64_t target = 0;
    for (int i = 0; i < layout->ndim; i++) {
        if (layout->shape[i] == 1)
            continue;
        if (layout->strides[i] == 0)
            return true;
        uint64_t limit = (uint64_t)layout->shape[i] - 1, stride = (uint64_t)layout->strides[i];
        tsr__equation_add(&equation, stride, 2 * limit);
        target += stride * limit;
    }
    return tsr__equation_solutions(&equation, target, 2) != TSR__EQUATION_NO;
}

static bool same_elements(const tsr_layout *a, const tsr_layout *b)
{
    if (a->dtype != b->dtype || a->offset != b->offset || !tsr_layout_same_shape(a, b))
        return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] != 1 && a->strides[i] != b->strides[i])
            return false;
    }
    return true;
}

/* Adds the terms for the distances of the elements from the first element. A distance is Σ
 * weight·x. `unit` is the size of an element: in bytes if the equation counts bytes, 1 if it counts
 * elements. */
static void add_dims(tsr__equation *equation, const tsr_layout *layout, uint64_t unit)
{
    for (int i = 0; i < layout->ndim; i++)
        tsr__equation_add(equation, (uint64_t)layout->strides[i] * unit,
                          (uint64_t)layout->shape[i] - 1);
}

/* The layouts have a byte in common if a.begin + Σ a·x + p = b.begin + Σ b·y + q, where p and q are
 * byte offsets within an element. Let y' and q' be the differences of y and q from their largest
 * values. The equation then becomes Σ a·x + Σ b·y' + p + q' = b.end − 1 − a.begin, in which no term
 * is negative. */
tsr__overlap tsr__layout_overlap(const tsr_layout *a, const tsr_layout *b)
{
    if (tsr__dtype_is_block(a->dtype) || tsr__dtype_is_block(b->dtype)) {
        const tsr_layout a_bytes = tsr__dtype_is_block(a->dtype) ? tsr__layout_of_bytes(a) : *a;
        const tsr_layout b_bytes = tsr__dtype_is_block(b->dtype) ? tsr__layout_of_bytes(b) : *b;
        const tsr__overlap overlap = tsr__layout_overlap(&a_bytes, &b_bytes);
        return overlap == TSR__OVERLAP_SAME && a->dtype != b->dtype ? TSR__OVERLAP_PARTIAL
                                                                    : overlap;
    }
    tsr__extent a_bytes = tsr__layout_extent(a), b_bytes = tsr__layout_extent(b);
    bool empty =
        a_bytes.begin_bytes == a_bytes.end_bytes || b_bytes.begin_bytes == b_bytes.end_bytes;
    if (empty || a_bytes.end_bytes <= b_bytes.begin_bytes ||
        b_bytes.end_bytes <= a_bytes.begin_bytes)
        return TSR__OVERLAP_NONE;

    uint64_t a_size = tsr_dtype_size(a->dtype), b_size = tsr_dtype_size(b->dtype);
    if (same_elements(a, b))
        return TSR__OVERLAP_SAME;

    tsr__equation equation = {0};
    uint64_t target = b_bytes.end_bytes - 1 - a_bytes.begin_bytes;
    if (a_size == b_size) {
        /* An element of `a` and one of `b` are either the same or have no byte in common, so the
         * equation can count elements instead of bytes, and needs no p and q. */
        add_dims(&equation, a, 1);
        add_dims(&equation, b, 1);
        target = (b_bytes.end_bytes - a_bytes.begin_bytes) / a_size - 1;
    } else {
        add_dims(&equation, a, a_size);
        add_dims(&equation, b, b_size);
        tsr__equation_add(&equation, 1, a_size - 1);
        tsr__equation_add(&equation, 1, b_size - 1);
    }
    tsr__equation_join(&equation);
    return tsr__equation_solutions(&equation, target, 1) == TSR__EQUATION_NO ? TSR__OVERLAP_NONE
                                                                             : TSR__OVERLAP_PARTIAL;
}
