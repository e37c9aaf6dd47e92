/* Refuses left recursion: a rule that begins with itself would be entered for ever without reading
 * a byte. */
#include "grammar/grammar.h"

/* The states that can be followed from each state, as a list for each. */
typedef struct graph {
    int32_t *starts; /* [nodes + 1] */
    int32_t *edges;
} graph;

typedef struct search {
    const tsr__automaton *a;
    uint8_t *empties; /* by state: the end of its rule can be reached without a byte */
    int32_t *work;
    uint8_t *visited;
    graph calls; /* by rule: the rules that it can begin with */
    graph users; /* the same, reversed */
    int32_t *degrees;
} search;

static void finish(search *s)
{
    tsr__free(s->empties);
    tsr__free(s->work);
    tsr__free(s->visited);
    tsr__free(s->calls.starts);
    tsr__free(s->calls.edges);
    tsr__free(s->users.starts);
    tsr__free(s->users.edges);
    tsr__free(s->degrees);
}

/* Reverses a graph of `nodes` nodes. */
static tsr_status reverse(const graph *from, size_t nodes, graph *to)
{
    const int32_t count = from->starts[nodes];
    to->starts = tsr__calloc(nodes + 2, sizeof *to->starts);
    to->edges = tsr__calloc((size_t)count, sizeof *to->edges);
    if (!to->starts || !to->edges)
        return TSR_ERR_NO_MEMORY;
    for (int32_t i = 0; i < count; i++)
        to->starts[from->edges[i] + 2]++;
    for (size_t n = 2; n < nodes + 2; n++)
        to->starts[n] += to->starts[n - 1];
    for (size_t n = 0; n < nodes; n++)
        for (int32_t i = from->starts[n]; i < from->starts[n + 1]; i++)
            to->edges[to->starts[from->edges[i] + 1]++] = (int32_t)n;
    return TSR_OK;
}

static bool is_empty(const search *s, size_t i)
{
    const tsr__state *state = &s->a->states[i];
    switch (state->kind) {
    case TSR__STATE_SPLIT:
        return s->empties[state->next] || s->empties[state->other];
    case TSR__STATE_CALL:
        return s->empties[state->next] && s->empties[s->a->starts[state->other]];
    default:
        return state->kind == TSR__STATE_END;
    }
}

/* Fills s->empties: looks again at each state that depends on one that has changed. */
static tsr_status find_empties(search *s)
{
    const tsr__automaton *a = s->a;
    const size_t count = a->count;
    graph needs = {tsr__calloc(count + 1, sizeof *needs.starts),
                   tsr__calloc(count, 2 * sizeof *needs.edges)};
    graph needed = {0};
    int32_t edges = 0;
    size_t queued = 0;
    tsr_status status = needs.starts && needs.edges ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (size_t i = 0; status == TSR_OK && i < count; i++) {
        const tsr__state *state = &a->states[i];
        needs.starts[i] = edges;
        if (state->kind == TSR__STATE_SPLIT || state->kind == TSR__STATE_CALL) {
            needs.edges[edges++] = state->next;
            needs.edges[edges++] =
                state->kind == TSR__STATE_SPLIT ? state->other : a->starts[state->other];
        }
        needs.starts[i + 1] = edges;
    }
    if (status == TSR_OK)
        status = reverse(&needs, count, &needed);
    for (size_t i = 0; status == TSR_OK && i < count; i++)
        if (a->states[i].kind == TSR__STATE_END) {
            s->empties[i] = 1;
            s->work[queued++] = (int32_t)i;
        }
    while (status == TSR_OK && queued > 0) {
        const int32_t at = s->work[--queued];
        for (int32_t i = needed.starts[at]; i < needed.starts[at + 1]; i++) {
            const int32_t user = needed.edges[i];
            if (!s->empties[user] && is_empty(s, (size_t)user)) {
                s->empties[user] = 1;
                s->work[queued++] = user;
            }
        }
    }
    tsr__free(needs.starts);
    tsr__free(needs.edges);
    tsr__free(needed.starts);
    tsr__free(needed.edges);
    return status;
}

/* Adds the rules that a rule can begin with to s->calls. A state belongs to one rule, so no state
 * is visited twice. */
static void find_calls(search *s, size_t rule, int32_t *edges)
{
    const tsr__automaton *a = s->a;
    size_t queued = 0;
    s->calls.starts[rule] = *edges;
    if (a->starts[rule] >= 0)
        s->work[queued++] = a->starts[rule];
    while (queued > 0) {
        const int32_t at = s->work[--queued];
        const tsr__state *state = &a->states[at];
        if (s->visited[at])
            continue;
        s->visited[at] = 1;
        if (state->kind == TSR__STATE_CALL)
            s->calls.edges[(*edges)++] = state->other;
        if (state->kind == TSR__STATE_SPLIT ||
            (state->kind == TSR__STATE_CALL && s->empties[a->starts[state->other]]))
            s->work[queued++] = state->next;
        if (state->kind == TSR__STATE_SPLIT)
            s->work[queued++] = state->other;
    }
    s->calls.starts[rule + 1] = *edges;
}

/* Removes rules that begin with no other one, again and again. Returns a rule that begins with
 * itself, or −1. */
static int32_t find_circle(search *s)
{
    const size_t rules = s->a->rule_count;
    size_t queued = 0, removed = 0;
    for (size_t i = 0; i < rules; i++) {
        s->degrees[i] = s->calls.starts[i + 1] - s->calls.starts[i];
        if (s->degrees[i] == 0)
            s->work[queued++] = (int32_t)i;
    }
    while (queued > 0) {
        const int32_t rule = s->work[--queued];
        removed++;
        for (int32_t i = s->users.starts[rule]; i < s->users.starts[rule + 1]; i++)
            if (--s->degrees[s->users.edges[i]] == 0)
                s->work[queued++] = s->users.edges[i];
    }
    if (removed == rules)
        return -1;
    /* Each rule that is left begins with another one that is left. After as many steps as there are
     * rules, the walk is in a circle. */
    int32_t rule = 0;
    while (s->degrees[rule] == 0)
        rule++;
    for (size_t step = 0; step < rules; step++) {
        int32_t i = s->calls.starts[rule];
        while (s->degrees[s->calls.edges[i]] == 0)
            i++;
        rule = s->calls.edges[i];
    }
    return rule;
}

static tsr_status check(const tsr__expressions *expressions, search *s)
{
    const size_t states = s->a->count, rules = s->a->rule_count;
    int32_t edges = 0;
    s->empties = tsr__calloc(states, 1);
    s->visited = tsr__calloc(states, 1);
    s->work = tsr__calloc(2 * states + rules, sizeof *s->work);
    s->calls.starts = tsr__calloc(rules + 1, sizeof *s->calls.starts);
    s->calls.edges = tsr__calloc(states, sizeof *s->calls.edges);
    s->degrees = tsr__calloc(rules, sizeof *s->degrees);
    if (!s->empties || !s->visited || !s->work || !s->calls.starts || !s->calls.edges ||
        !s->degrees)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(find_empties(s));
    for (size_t i = 0; i < rules; i++)
        find_calls(s, i, &edges);
    TSR__TRY(reverse(&s->calls, rules, &s->users));
    const int32_t circle = find_circle(s);
    if (circle < 0)
        return TSR_OK;
    const tsr__rule *rule = &expressions->rules[circle];
    return tsr__fail(TSR_ERR_INVALID,
                     "grammar: line %d, column %d: rule '%.80s' begins with itself (left "
                     "recursion)",
                     (int)rule->line, (int)rule->column,
                     (const char *)expressions->bytes.data + rule->name);
}

tsr_status tsr__automaton_check(const tsr__expressions *expressions,
                                const tsr__automaton *automaton)
{
    search s = {.a = automaton};
    const tsr_status status = check(expressions, &s);
    finish(&s);
    return status;
}
