/* Finds the tokens that may follow. A text has mostly the same rules around it for many tokens, and
 * the same rule in many places. So the tokens are found in two parts. For a set of states without
 * the rules around them, a walk through the whole trie finds the tokens that stay inside the rule,
 * and the nodes at which the rule may end. This is done once for a grammar. For each stack, only
 * the nodes below those are visited. Both results are kept. */
#include <string.h>

#include "base/clock.h"
#include "grammar/grammar.h"

/* A mask is taken from that of a repetition without a limit if at least this many bytes are alike.
 */
#define LEAST_DEPTH 4
/* and is not kept if so many are: few tokens are longer. */
#define MOST_KEPT_DEPTH 16

/* A mask is found from that of another set only if at least so many bytes lead there. */
#define LEAST_BYTES 32
/* Sets of more readings are not looked at before they are asked for. */
#define MOST_AHEAD 64

static void allow(const tsr__token_trie *t, uint32_t node, uint32_t *words)
{
    for (uint32_t i = t->firsts[node]; i < t->firsts[node + 1]; i++)
        words[t->tokens[i] / 32] |= UINT32_C(1) << (t->tokens[i] % 32);
}

static tsr_status add_end(tsr__mask *mask, uint32_t node)
{
    void *list = mask->ends;
    TSR__TRY(tsr__grow(&list, &mask->end_capacity, mask->end_count + 1, sizeof *mask->ends));
    mask->ends = list;
    mask->ends[mask->end_count++] = node;
    return TSR_OK;
}

/* Allows the tokens below a node, not including it, that have more than `shallow` bytes and that
 * `set` can read. With `ends`, adds the nodes at which the rule can end. */
static tsr_status walk(tsr_grammar *g, uint32_t node, int32_t set, uint32_t shallow, tsr__mask *out,
                       bool ends)
{
    const tsr__token_trie *t = g->trie;
    const uint32_t end = t->nexts[node], base = t->depths[node];
    int32_t *path = g->path;
    path[0] = set;
    /* A rule may end at most nodes, for many stacks, so a walk that visits no node counts, too. */
    if (++g->effort > TSR__MOST_EFFORT)
        return tsr__too_ambiguous();
    for (uint32_t n = node + 1; n < end;) {
        const uint32_t depth = t->depths[n] - base;
        int32_t next;
        if (t->deepest[n] <= shallow) {
            n = t->nexts[n];
            continue;
        }
        if (++g->effort > TSR__MOST_EFFORT)
            return tsr__too_ambiguous();
        TSR__TRY(tsr__readings_step(g, path[depth - 1], t->bytes[n], &next));
        if (next == 0) {
            n = t->nexts[n];
            continue;
        }
        path[depth] = next;
        if (t->depths[n] > shallow)
            allow(t, n, out->words);
        if (ends && t->depths[n] > shallow && g->readings.sets[next].ends) {
            TSR__TRY(add_end(out, n));
        }
        n++;
    }
    return TSR_OK;
}

/* Finds the tokens that may follow these states, whatever the rules around them. The result is
 * valid until the next call. */
static tsr_status find_local(tsr_grammar *g, int32_t set, const tsr__mask **out);

/* Adds the tokens that may follow those readings of a set that have the same stack. */
static tsr_status add_stack(tsr_grammar *g, const uint64_t *readings, size_t count, int32_t stack,
                            tsr__mask *out)
{
    const tsr__stack_node around = g->readings.stacks[stack];
    const tsr__mask *local;
    int32_t set;
    TSR__TRY(tsr__readings_find(g, count, readings, &set));
    TSR__TRY(find_local(g, set, &local));
    for (size_t i = 0; i < g->mask_words; i++)
        out->words[i] |= local->words[i];
    if (stack == TSR__STACK_ROOT || local->end_count == 0)
        return TSR_OK;
    TSR__TRY(tsr__readings_find(g, 1, (const uint64_t[]){tsr__reading(around.state, around.below)},
                                &set));
    for (size_t i = 0; i < local->end_count; i++)
        TSR__TRY(walk(g, local->ends[i], set, 0, out, false));
    return TSR_OK;
}

/* Adds the tokens that may follow a set, one stack after the other. */
static tsr_status add_stacks(tsr_grammar *g, const uint64_t *readings, size_t count,
                             uint64_t *group, tsr__mask *out)
{
    for (size_t first = 0; first < count; first++) {
        const int32_t stack = (int32_t)(uint32_t)readings[first];
        size_t size = 0;
        bool done = readings[first] >> 32 == TSR__READING_END;
        for (size_t i = 0; i < first && !done; i++)
            done = (int32_t)(uint32_t)readings[i] == stack;
        for (size_t i = first; i < count && !done; i++)
            if ((int32_t)(uint32_t)readings[i] == stack && readings[i] >> 32 != TSR__READING_END)
                group[size++] = tsr__reading((int32_t)(readings[i] >> 32), TSR__STACK_LOCAL);
        if (!done)
            TSR__TRY(add_stack(g, group, size, stack, out));
    }
    return TSR_OK;
}

static void destroy_mask(tsr__mask *mask)
{
    if (!mask)
        return;
    tsr__free(mask->words);
    tsr__free(mask->ends);
    tsr__free(mask);
}

static tsr__mask *create_mask(const tsr_grammar *g)
{
    tsr__mask *mask = tsr__calloc(1, sizeof *mask);
    if (mask)
        mask->words = tsr__calloc(g->mask_words, sizeof *mask->words);
    if (mask && !mask->words) {
        destroy_mask(mask);
        return NULL;
    }
    return mask;
}

/* Keeps the mask of a set if it was found, and destroys it otherwise. */
static tsr_status keep(tsr_grammar *g, int32_t set, tsr_status status, tsr__mask *mask,
                       const tsr__mask **out)
{
    if (status != TSR_OK) {
        destroy_mask(mask);
        return status;
    }
    g->readings.bytes +=
        g->mask_words * sizeof *mask->words + mask->end_capacity * sizeof *mask->ends;
    g->readings.sets[set].mask = mask;
    *out = mask;
    return TSR_OK;
}

/* Copies the tokens and ends of a mask that have at most `depth` bytes. */
static tsr_status copy_shallow(const tsr_grammar *g, const tsr__mask *from, uint32_t depth,
                               tsr__mask *out)
{
    const tsr__token_trie *t = g->trie;
    memcpy(out->words, from->words, g->mask_words * sizeof *out->words);
    for (uint32_t n = 1; n < t->count;) {
        if (t->deepest[n] <= depth) {
            n = t->nexts[n];
            continue;
        }
        if (t->depths[n] > depth)
            for (uint32_t i = t->firsts[n]; i < t->firsts[n + 1]; i++)
                out->words[t->tokens[i] / 32] &= ~(UINT32_C(1) << (t->tokens[i] % 32));
        n++;
    }
    out->end_count = 0;
    for (size_t i = 0; i < from->end_count; i++)
        if (t->depths[from->ends[i]] <= depth)
            TSR__TRY(add_end(out, from->ends[i]));
    return TSR_OK;
}

/* Gives the set of the states to which those of a set are alike, and up to which depth. It is the
 * set itself if some states have stacks of their own, or if the depth is small. */
static tsr_status find_alike(tsr_grammar *g, int32_t set, int32_t *out, int32_t *depth)
{
    const tsr__reading_set s = g->readings.sets[set];
    uint64_t few[64];
    size_t count = 0;
    *depth = TSR__ALIKE_ALWAYS;
    *out = set;
    if (s.count > sizeof few / sizeof *few)
        return TSR_OK;
    for (uint32_t i = 0; i < s.count; i++) {
        const uint64_t reading = g->readings.readings[s.first + i];
        if ((uint32_t)reading != TSR__STACK_LOCAL)
            return TSR_OK;
        if (reading >> 32 == TSR__READING_LEFT) /* the end itself allows nothing */
            continue;
        const tsr__alike alike = g->automaton.alike[reading >> 32];
        few[count++] = tsr__reading(alike.state, TSR__STACK_LOCAL);
        *depth = alike.depth < *depth ? alike.depth : *depth;
    }
    return *depth < LEAST_DEPTH ? TSR_OK : tsr__readings_find(g, count, few, out);
}

/* Returns whether the mask of a set may be asked for as it is: all readings have the local stack,
 * and none is the end of the rule. */
static bool is_local(const tsr_grammar *g, int32_t set)
{
    const tsr__reading_set *s = &g->readings.sets[set];
    for (uint32_t i = 0; i < s->count; i++)
        if ((uint32_t)g->readings.readings[s->first + i] != TSR__STACK_LOCAL)
            return false;
    return !s->ends;
}

/* Gives the set to which most bytes lead from a set; 0 if they are fewer than LEAST_BYTES. */
static tsr_status find_usual_next(tsr_grammar *g, int32_t set, int32_t *out)
{
    int32_t nexts[256];
    int counts[256], kinds = 0, most = 0;
    for (int byte = 0; byte < 256; byte++) {
        int32_t next;
        int kind = 0;
        TSR__TRY(tsr__readings_step(g, set, (uint8_t)byte, &next));
        while (kind < kinds && nexts[kind] != next)
            kind++;
        if (kind == kinds) {
            nexts[kinds] = next;
            counts[kinds++] = 0;
        }
        counts[kind]++;
    }
    *out = 0;
    for (int kind = 0; kind < kinds; kind++)
        if (nexts[kind] != 0 && counts[kind] >= LEAST_BYTES && counts[kind] > most) {
            most = counts[kind];
            *out = nexts[kind];
        }
    return TSR_OK;
}

/* Gives a set that reads most tokens as this one does: the states inside a string to which most
 * bytes lead, also from there. 0: there is none. */
static tsr_status find_model(tsr_grammar *g, int32_t set, int32_t *out)
{
    int32_t next;
    TSR__TRY(find_usual_next(g, set, out));
    if (*out == 0 || *out == set || !is_local(g, *out)) {
        *out = 0;
        return TSR_OK;
    }
    TSR__TRY(find_usual_next(g, *out, &next));
    *out = next == *out ? next : 0;
    return TSR_OK;
}

/* The ends of a mask and of its model, which are in ascending order. */
typedef struct end_merge {
    const tsr__mask *model;
    size_t next; /* in model->ends */
    tsr__mask *out;
} end_merge;

/* Takes over the model's ends before a node. */
static tsr_status take_ends(end_merge *m, uint32_t node)
{
    while (m->next < m->model->end_count && m->model->ends[m->next] < node)
        TSR__TRY(add_end(m->out, m->model->ends[m->next++]));
    return TSR_OK;
}

/* Finds the mask of a set from that of its model: walks only where the two read different sets. */
static tsr_status walk_beside(tsr_grammar *g, int32_t set, int32_t model_set,
                              const tsr__mask *model, tsr__mask *out)
{
    const tsr__token_trie *t = g->trie;
    int32_t *own = g->path, *other = g->path + t->longest + 1;
    end_merge ends = {.model = model, .out = out};
    memcpy(out->words, model->words, g->mask_words * sizeof *out->words);
    own[0] = set;
    other[0] = model_set;
    for (uint32_t n = 1; n < t->count;) {
        const uint32_t depth = t->depths[n];
        int32_t next, wanted;
        if (++g->effort > TSR__MOST_EFFORT)
            return tsr__too_ambiguous();
        TSR__TRY(tsr__readings_step(g, own[depth - 1], t->bytes[n], &next));
        TSR__TRY(tsr__readings_step(g, other[depth - 1], t->bytes[n], &wanted));
        if (next == wanted) {
            n = t->nexts[n];
            continue;
        }
        own[depth] = next;
        other[depth] = wanted;
        for (uint32_t i = t->firsts[n]; i < t->firsts[n + 1]; i++)
            out->words[t->tokens[i] / 32] &= ~(UINT32_C(1) << (t->tokens[i] % 32));
        if (next != 0)
            allow(t, n, out->words);
        TSR__TRY(take_ends(&ends, n));
        ends.next += ends.next < model->end_count && model->ends[ends.next] == n;
        if (g->readings.sets[next].ends)
            TSR__TRY(add_end(out, n));
        n++;
    }
    return take_ends(&ends, UINT32_MAX);
}

/* Walks through the trie for a set, and keeps or shares the mask. */
static tsr_status find_new(tsr_grammar *g, int32_t set, const tsr__mask **out)
{
    const tsr__reading_set s = g->readings.sets[set];
    const tsr__mask *model = NULL;
    int32_t model_set = 0;
    *out = tsr__shared_mask_find(g, g->readings.readings + s.first, s.count);
    if (*out)
        return TSR_OK;
    TSR__TRY(find_model(g, set, &model_set));
    if (model_set != 0)
        TSR__TRY(find_local(g, model_set, &model));
    tsr__mask *mask = create_mask(g);
    if (!mask)
        return TSR_ERR_NO_MEMORY;
    tsr_status status =
        model ? walk_beside(g, set, model_set, model, mask) : walk(g, 0, set, 0, mask, true);
    if (status == TSR_OK)
        status = tsr__shared_mask_add(g, g->readings.readings + s.first, s.count, mask, out);
    if (*out) {
        destroy_mask(mask);
        return TSR_OK;
    }
    return keep(g, set, status, mask, out);
}

static tsr_status find_local(tsr_grammar *g, int32_t set, const tsr__mask **out)
{
    const tsr__mask *model;
    int32_t alike, depth;
    *out = g->readings.sets[set].mask;
    if (*out)
        return TSR_OK;
    TSR__TRY(find_alike(g, set, &alike, &depth));
    if (alike == set)
        return find_new(g, set, out);
    if (depth == TSR__ALIKE_ALWAYS)
        return find_local(g, alike, out);
    TSR__TRY(find_local(g, alike, &model));
    if (depth >= MOST_KEPT_DEPTH && model != &g->partial) { /* finding it again is cheap */
        TSR__TRY(copy_shallow(g, model, (uint32_t)depth, &g->partial));
        *out = &g->partial;
        return walk(g, 0, set, (uint32_t)depth, &g->partial, true);
    }
    tsr__mask *mask = create_mask(g);
    if (!mask)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = copy_shallow(g, model, (uint32_t)depth, mask);
    if (status == TSR_OK)
        status = walk(g, 0, set, (uint32_t)depth, mask, true);
    return keep(g, set, status, mask, out);
}

/* Finds the mask of a set, mask->words, which are 0. */
static tsr_status find(tsr_grammar *g, int32_t set, tsr__mask *mask)
{
    const size_t count = g->readings.sets[set].count;
    uint64_t *readings = tsr__calloc(count, 2 * sizeof *readings);
    if (!readings)
        return TSR_ERR_NO_MEMORY;
    memcpy(readings, g->readings.readings + g->readings.sets[set].first, count * sizeof *readings);
    const tsr_status status = add_stacks(g, readings, count, readings + count, mask);
    tsr__free(readings);
    return status;
}

/* Many sets never come back, such as those inside a string whose length has a limit. So a mask is
 * kept when it is asked for the second time. */
tsr_status tsr__mask_find(tsr_grammar *g, int32_t set, const tsr__mask **out)
{
    if (g->readings.sets[set].mask) {
        *out = g->readings.sets[set].mask;
        return TSR_OK;
    }
    if (!g->readings.sets[set].asked) {
        memset(g->once.words, 0, g->mask_words * sizeof *g->once.words);
        TSR__TRY(find(g, set, &g->once));
        g->readings.sets[set].asked = true;
        *out = &g->once;
        return TSR_OK;
    }
    tsr__mask *mask = create_mask(g);
    if (!mask)
        return TSR_ERR_NO_MEMORY;
    return keep(g, set, find(g, set, mask), mask, out);
}

/* Masks ahead -------------------------------------------------------------------------------- */

/* The sets to visit, in the order in which they were found. */
typedef struct visits {
    int32_t *sets;
    size_t count, capacity;
} visits;

static tsr_status visit_later(const tsr_grammar *g, int32_t set, visits *list)
{
    tsr__reading_set *s = &g->readings.sets[set];
    if (set == 0 || s->ahead)
        return TSR_OK;
    void *sets = list->sets;
    TSR__TRY(tsr__grow(&sets, &list->capacity, list->count + 1, sizeof *list->sets));
    list->sets = sets;
    list->sets[list->count++] = set;
    s->ahead = true;
    return TSR_OK;
}

/* Visits the set of all readings that begin at `count` states with TSR__STACK_LOCAL. */
static tsr_status visit_local(tsr_grammar *g, const uint64_t *starts, size_t count, visits *list)
{
    int32_t set;
    g->effort = 0;
    TSR__TRY(tsr__readings_find(g, count, starts, &set));
    return visit_later(g, set, list);
}

/* Visits what a set consists of: the readings of each stack without the stack, and the states to
 * which rules return. */
static tsr_status visit_stacks(tsr_grammar *g, int32_t set, visits *list)
{
    const tsr__reading_set s = g->readings.sets[set];
    uint64_t all[MOST_AHEAD], group[MOST_AHEAD];
    if (s.count > MOST_AHEAD)
        return TSR_OK;
    memcpy(all, g->readings.readings + s.first, s.count * sizeof *all);
    for (uint32_t i = 0; i < s.count; i++) {
        const int32_t stack = (int32_t)(uint32_t)all[i];
        size_t size = 0;
        bool done = all[i] >> 32 == TSR__READING_END || all[i] >> 32 == TSR__READING_LEFT;
        for (uint32_t k = 0; k < i && !done; k++)
            done = (int32_t)(uint32_t)all[k] == stack;
        for (uint32_t k = i; k < s.count && !done; k++)
            if ((int32_t)(uint32_t)all[k] == stack && all[k] >> 32 < TSR__READING_LEFT)
                group[size++] = tsr__reading((int32_t)(all[k] >> 32), TSR__STACK_LOCAL);
        if (!done)
            TSR__TRY(visit_local(g, group, size, list));
        for (int32_t at = stack; at >= TSR__STACKS && !done; at = g->readings.stacks[at].below)
            TSR__TRY(visit_local(
                g, (const uint64_t[]){tsr__reading(g->readings.stacks[at].state, TSR__STACK_LOCAL)},
                1, list));
    }
    return TSR_OK;
}

/* Finds the mask of a set without rules around it, and visits the sets that follow it. */
static tsr_status visit_next(tsr_grammar *g, int32_t set, visits *list)
{
    const tsr__mask *mask;
    int32_t alike, depth;
    int class = -1;
    g->effort = 0;
    TSR__TRY(find_alike(g, set, &alike, &depth));
    /* A mask that would not be kept is cheap. */
    TSR__TRY(find_local(g, depth < MOST_KEPT_DEPTH ? set : alike, &mask));
    for (int byte = 0; byte < 256; byte++) {
        int32_t next;
        if (g->automaton.classes[byte] == class)
            continue;
        class = g->automaton.classes[byte];
        g->effort = 0;
        TSR__TRY(tsr__readings_step(g, set, (uint8_t)byte, &next));
        TSR__TRY(visit_later(g, next, list));
    }
    return TSR_OK;
}

tsr_status tsr__masks_ahead(tsr_grammar *g, uint64_t time_ns)
{
    const uint64_t end = tsr__now_ns() + time_ns;
    visits list = {0};
    tsr_status status = visit_local(
        g, (const uint64_t[]){tsr__reading(g->automaton.starts[0], TSR__STACK_LOCAL)}, 1, &list);
    for (size_t i = 0; i < list.count && status == TSR_OK; i++) {
        if (tsr__now_ns() >= end || tsr__readings_are_many(&g->readings))
            break;
        status = is_local(g, list.sets[i]) ? visit_next(g, list.sets[i], &list)
                                           : visit_stacks(g, list.sets[i], &list);
    }
    tsr__free(list.sets);
    /* A mask that is too expensive is an error when it is asked for. */
    return status == TSR_ERR_OVERFLOW ? TSR_OK : status;
}
