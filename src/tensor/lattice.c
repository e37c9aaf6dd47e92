#include "tensor/lattice.h"

#include "base/checked.h"

/* Search nodes before giving up: well under a millisecond. Views cut from one parent need a few per
 * dimension. */
#define NODE_LIMIT 20000

void tsr__lattice_add(tsr__lattice *lattice, uint64_t weight, uint64_t limit)
{
    if (weight == 0 || limit == 0)
        return;
    lattice->weight[lattice->terms] = weight;
    lattice->limit[lattice->terms] = limit;
    lattice->terms++;
}

void tsr__lattice_join(tsr__lattice *lattice)
{
    int kept = 0;
    for (int i = 0; i < lattice->terms; i++) {
        int same = 0;
        while (same < kept && lattice->weight[same] != lattice->weight[i])
            same++;
        if (same < kept) {
            lattice->limit[same] += lattice->limit[i];
        } else {
            lattice->weight[kept] = lattice->weight[i];
            lattice->limit[kept] = lattice->limit[i];
            kept++;
        }
    }
    lattice->terms = kept;
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

/* Heaviest first: then each choice leaves the least freedom to the terms after it. */
static void sort_descending(tsr__lattice *lattice)
{
    for (int i = 1; i < lattice->terms; i++) {
        uint64_t weight = lattice->weight[i], limit = lattice->limit[i];
        int to = i;
        for (; to > 0 && lattice->weight[to - 1] < weight; to--) {
            lattice->weight[to] = lattice->weight[to - 1];
            lattice->limit[to] = lattice->limit[to - 1];
        }
        lattice->weight[to] = weight;
        lattice->limit[to] = limit;
    }
}

typedef struct search {
    const tsr__lattice *lattice;
    uint64_t reach[TSR__LATTICE_TERMS + 1]; /* the most that terms i, i+1, … can add up to */
    uint64_t step[TSR__LATTICE_TERMS + 1];  /* … and the greatest divisor of all their sums */
    int nodes_left;
    int solutions_left;
} search;

/* Runs until solutions_left or nodes_left is 0, or everything has been tried. Depth ≤
 * TSR__LATTICE_TERMS. */
static void try_term(search *s, int term, uint64_t target)
{
    if (s->nodes_left == 0)
        return;
    s->nodes_left--;
    if (term == s->lattice->terms) {
        s->solutions_left -= target == 0;
        return;
    }
    if (target > s->reach[term] || target % s->step[term] != 0)
        return;

    /* Only values that leave a rest the later terms can reach. */
    uint64_t weight = s->lattice->weight[term], rest = s->reach[term + 1];
    uint64_t x = target > rest ? tsr__div_up_u64(target - rest, weight) : 0;
    uint64_t last = tsr__min_u64(s->lattice->limit[term], target / weight);
    for (; x <= last && s->solutions_left > 0 && s->nodes_left > 0; x++)
        try_term(s, term + 1, target - x * weight);
}

tsr__lattice_answer tsr__lattice_solutions(tsr__lattice *lattice, uint64_t target, int wanted)
{
    sort_descending(lattice);
    search s = {.lattice = lattice, .nodes_left = NODE_LIMIT, .solutions_left = wanted};
    for (int i = lattice->terms - 1; i >= 0; i--) {
        s.reach[i] = s.reach[i + 1] + lattice->weight[i] * lattice->limit[i];
        s.step[i] = gcd(lattice->weight[i], s.step[i + 1]);
    }
    try_term(&s, 0, target);
    if (s.solutions_left == 0)
        return TSR__LATTICE_YES;
    return s.nodes_left == 0 ? TSR__LATTICE_GAVE_UP : TSR__LATTICE_NO;
}
