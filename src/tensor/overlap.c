#include "tensor/overlap.h"

#include "base/checked.h"
#include "tensor/check.h"
#include "tensor/dtype.h"

/* Bounded equations ---------------------------------------------------------------------------- */

/* In how many ways can a target be written as a sum Σ weight·x, where each x is an integer with 0 ≤
 * x ≤ limit? Whether two views have an element in common is a question of this form. The problem is
 * hard in general, but easy for the weights that views have. */

#define EQUATION_TERMS 20

typedef struct bounded_equation {
    int terms;
    uint64_t weight[EQUATION_TERMS]; /* > 0 */
    uint64_t limit[EQUATION_TERMS];  /* > 0 */
} bounded_equation;

typedef enum equation_answer { EQUATION_NO, EQUATION_YES, EQUATION_GAVE_UP } equation_answer;

/* The search ends without an answer after this many nodes of the search tree, which takes much less
 * than a millisecond. For views that were sliced from one tensor, the search needs only a few nodes
 * per dimension. */
#define NODE_LIMIT 20000

/* Adds a term. A term with the weight 0 or the limit 0 is ignored, because it cannot contribute to
 * the sum. The sum of all weight·limit must fit 64 bits. */
static void equation_add(bounded_equation *equation, uint64_t weight, uint64_t limit)
{
    if (weight == 0 || limit == 0)
        return;
    equation->weight[equation->terms] = weight;
    equation->limit[equation->terms] = limit;
    equation->terms++;
}

/* Combines all terms that have the same weight into one term, whose limit is the sum of theirs.
 * This changes the number of solutions, but not whether there are any. */
static void equation_join(bounded_equation *equation)
{
    int kept = 0;
    for (int i = 0; i < equation->terms; i++) {
        int same = 0;
        while (same < kept && equation->weight[same] != equation->weight[i])
            same++;
        if (same < kept) {
            equation->limit[same] += equation->limit[i];
        } else {
            equation->weight[kept] = equation->weight[i];
            equation->limit[kept] = equation->limit[i];
            kept++;
        }
    }
    equation->terms = kept;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Sorts the terms by weight, largest first. The choice of one variable then restricts the choices
 * of the following variables as much as possible. */
static void sort_descending(bounded_equation *equation)
{
    for (int i = 1; i < equation->terms; i++) {
        uint64_t weight = equation->weight[i], limit = equation->limit[i];
        int to = i;
        for (; to > 0 && equation->weight[to - 1] < weight; to--) {
            equation->weight[to] = equation->weight[to - 1];
            equation->limit[to] = equation->limit[to - 1];
        }
        equation->weight[to] = weight;
        equation->limit[to] = limit;
    }
}

typedef struct search {
    const bounded_equation *equation;
    uint64_t reach[EQUATION_TERMS + 1]; /* the largest sum of terms i, i+1, … */
    /* the greatest common divisor of the weights of terms i, i+1, … */
    uint64_t step[EQUATION_TERMS + 1];
    int nodes_left;
    int solutions_left;
} search;

/* Searches depth first until solutions_left or nodes_left is 0, or until all values have been
 * tried. The depth of the recursion is at most EQUATION_TERMS. */
static void try_term(search *s, int term, uint64_t target)
{
    if (s->nodes_left == 0)
        return;
    s->nodes_left--;
    if (term == s->equation->terms) {
        s->solutions_left -= target == 0;
        return;
    }
    if (target > s->reach[term] || target % s->step[term] != 0)
        return;

    /* Try only values of x for which the later terms can add up to what is left of the target. */
    uint64_t weight = s->equation->weight[term], rest = s->reach[term + 1];
    uint64_t x = target > rest ? tsr__div_up_u64(target - rest, weight) : 0;
    uint64_t last = tsr__min_u64(s->equation->limit[term], target / weight);
    for (; x <= last && s->solutions_left > 0 && s->nodes_left > 0; x++)
        try_term(s, term + 1, target - x * weight);
}

/* Answers whether there are at least `wanted` (≥ 1) solutions. The search does a limited amount of
 * work and then ends without an answer. Sorts the terms. */
static equation_answer equation_solutions(bounded_equation *equation, uint64_t target, int wanted)
{
    sort_descending(equation);
    search s = {.equation = equation, .nodes_left = NODE_LIMIT, .solutions_left = wanted};
    for (int i = equation->terms - 1; i >= 0; i--) {
        s.reach[i] = s.reach[i + 1] + equation->weight[i] * equation->limit[i];
        s.step[i] = gcd(equation->weight[i], s.step[i + 1]);
    }
    try_term(&s, 0, target);
    if (s.solutions_left == 0)
        return EQUATION_YES;
    return s.nodes_left == 0 ? EQUATION_GAVE_UP : EQUATION_NO;
}

/* Layouts ---------------------------------------------------------------------------------------
 */

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
    bounded_equation equation = {0};
    uint64_t target = 0;
    for (int i = 0; i < layout->ndim; i++) {
        if (layout->shape[i] == 1)
            continue;
        if (layout->strides[i] == 0)
            return true;
        uint64_t limit = (uint64_t)layout->shape[i] - 1, stride = (uint64_t)layout->strides[i];
        equation_add(&equation, stride, 2 * limit);
        target += stride * limit;
    }
    return equation_solutions(&equation, target, 2) != EQUATION_NO;
}

static bool same_elements(const tsr_layout *a, const tsr_layout *b)
{
    if (a->dtype != b->dtype || a->offset != b->offset || !tsr__layout_same_shape(a, b))
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
static void add_dims(bounded_equation *equation, const tsr_layout *layout, uint64_t unit)
{
    for (int i = 0; i < layout->ndim; i++)
        equation_add(equation, (uint64_t)layout->strides[i] * unit, (uint64_t)layout->shape[i] - 1);
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

    bounded_equation equation = {0};
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
        equation_add(&equation, 1, a_size - 1);
        equation_add(&equation, 1, b_size - 1);
    }
    equation_join(&equation);
    return equation_solutions(&equation, target, 1) == EQUATION_NO ? TSR__OVERLAP_NONE
                                                                   : TSR__OVERLAP_PARTIAL;
}
