/* Finds the tokens that may follow. A text has mostly the same rules around it for many tokens, and
 * the same rule in many places. So the tokens are found in two parts. For a set of states without
 * the rules around them, a walk through the whole trie finds the tokens that stay inside the rule,
 * and the nodes at which the rule may end. This is done once for a grammar. For each stack, only
 * the nodes below those are visited. Both results are kept. */
#include <string.h>

#include "grammar/grammar.h"

static void allow(const tsr__token_trie *t, uint32_t node, uint32_t *words)
{
    for (uint32_t i = t->firsts[node]; i < t->firsts[node + 1]; i++)
        words[t->tokens[i] / 32] |= UINT32_C(1) << (t->tokens[i] % 32);
}

/* Allows the tokens below a node, not including it, that `set` can read. If `ends` is not NULL,
 * adds the nodes at which the rule can end to it. */
static tsr_status walk(tsr_grammar *g, uint32_t node, int32_t set, tsr__mask *out, bool ends)
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
        if (++g->effort > TSR__MOST_EFFORT)
            return tsr__too_ambiguous();
        TSR__TRY(tsr__readings_step(g, path[depth - 1], t->bytes[n], &next));
        if (next == 0) {
            n = t->nexts[n];
            continue;
        }
        path[depth] = next;
        allow(t, n, out->words);
        if (ends && g->readings.sets[next].ends) {
            void *list = out->ends;
            TSR__TRY(tsr__grow(&list, &out->end_capacity, out->end_count + 1, sizeof *out->ends));
            out->ends = list;
            out->ends[out->end_count++] = n;
        }
        n++;
    }
    return TSR_OK;
}

/* Finds the tokens that may follow these states, whatever the rules around them. */
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
        TSR__TRY(walk(g, local->ends[i], set, out, false));
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
                group[size++] =
                    tsr__reading(g->automaton.alike[readings[i] >> 32], TSR__STACK_LOCAL);
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

static tsr_status find_local(tsr_grammar *g, int32_t set, const tsr__mask **out)
{
    if (g->readings.sets[set].mask) {
        *out = g->readings.sets[set].mask;
        return TSR_OK;
    }
    tsr__mask *mask = create_mask(g);
    if (!mask)
        return TSR_ERR_NO_MEMORY;
    return keep(g, set, walk(g, 0, set, mask, true), mask, out);
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
