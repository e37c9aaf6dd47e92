#include "tensor/equation.h"

#include "base/checked.h"

/* The search ends without an answer after this many nodes of the search tree, which takes much less
 * than a millisecond. For views that were sliced from one tensor, the search needs only a few nodes
 * per dimension. */
#define NODE_LIMIT 20000

void tsr__equation_add(tsr__equation *equation, uint64_t weight, uint64_t limit)
{
    if (weight == 0 || limit == 0)
        return;
    equation->weight[equation->terms] = weight;
    equation->limit[equation->terms] = limit;
    equation->terms++;
}

void tsr__equation_join(tsr__equation *equation)
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
static void sort_descending(tsr__equation *equation)
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
    const tsr__equation *equation;
    uint64_t reach[TSR__EQUATION_TERMS + 1]; /* the largest sum of terms i, i+1, … */
    /* the greatest common divisor of the weights of terms i, i+1, … */
    uint64_t step[TSR__EQUATION_TERMS + 1];
    int nodes_left;
    int solutions_left;
} search;

/* Searches depth first until solutions_left or nodes_left is 0, or until all values have been
 * tried. The depth of the recursion is at most TSR__EQUATION_TERMS. */
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

tsr__equation_answer tsr__equation_solutions(tsr__equation *equation, uint64_t target, int wanted)
{
    sort_descending(equation);
    search s = {.equation = equation, .nodes_left = NODE_LIMIT, .solutions_left = wanted};
    for (int i = equation->terms - 1; i >= 0; i--) {
        s.reach[i] = s.reach[i + 1] + equation->weight[i] * equation->limit[i];
        s.step[i] = gcd(equation->weight[i], s.step[i + 1]);
    }
    try_term(&s, 0, target);
    if (s.solutions_left == 0)
        return TSR__EQUATION_YES;
    return s.nodes_left == 0 ? TSR__EQUATION_GAVE_UP : TSR__EQUATION_NO;
}
