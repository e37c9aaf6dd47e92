/* Reads bytes with an automaton: the sets of all ways to read a text, which are computed when they
 * are needed first, and kept. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/grammar.h"

#define LEAST_TABLE 64
/* How much is kept: masks and transitions in bytes, and sets. */
#define MOST_BYTES (UINT64_C(64) << 20)
#define MOST_SETS 65536
#define MOST_STACKS (1 << 20)

/* Hash tables -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash)
{
    hash ^= hash >> 32;
    hash *= UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const uint64_t *words, size_t count)
{
    uint64_t hash = TSR__HASH_START;
    for (size_t i = 0; i < count; i++)
        hash = mix(hash ^ words[i]) + i;
    return hash;
}

static uint64_t stack_hash(const tsr__stack_node *s)
{
    return mix(tsr__reading(s->state, s->below));
}

static uint64_t set_hash(const tsr__readings *r, size_t set)
{
    return hash_of(r->readings + r->sets[set].first, r->sets[set].count);
}

static void enter(int32_t *table, size_t size, uint64_t hash, int32_t number)
{
    size_t at = (size_t)hash & (size - 1);
    while (table[at] != 0)
        at = (at + 1) & (size - 1);
    table[at] = number + 1;
}

/* Doubles a hash table that would become more than half full with `count` entries. Sets *grown if
 * its entries must be entered again. */
static tsr_status grow_table(int32_t **table, size_t *size, size_t count, bool *grown)
{
    *grown = false;
    if (2 * count <= *size)
        return TSR_OK;
    const size_t larger = *size > 0 ? 2 * *size : LEAST_TABLE;
    int32_t *entries = tsr__calloc(larger, sizeof *entries);
    if (!entries)
        return TSR_ERR_NO_MEMORY;
    tsr__free(*table);
    *table = entries;
    *size = larger;
    *grown = true;
    return TSR_OK;
}

/* Stacks ------------------------------------------------------------------------------------- */

/* Gives the stack that has `state` on top of `below`. */
static tsr_status find_stack(tsr__readings *r, int32_t below, int32_t state, int32_t *out)
{
    bool grown;
    const tsr__stack_node wanted = {below, state, r->stacks[below].depth + 1};
    TSR__TRY(grow_table(&r->stack_table, &r->stack_table_size, r->stack_count + 1, &grown));
    for (size_t i = TSR__STACKS; grown && i < r->stack_count; i++)
        enter(r->stack_table, r->stack_table_size, stack_hash(&r->stacks[i]), (int32_t)i);
    const size_t mask = r->stack_table_size - 1;
    for (size_t at = (size_t)stack_hash(&wanted) & mask; r->stack_table[at] != 0;
         at = (at + 1) & mask) {
        const tsr__stack_node *known = &r->stacks[r->stack_table[at] - 1];
        if (known->below == below && known->state == state) {
            *out = r->stack_table[at] - 1;
            return TSR_OK;
        }
    }
    void *stacks = r->stacks;
    TSR__TRY(tsr__grow(&stacks, &r->stack_capacity, r->stack_count + 1, sizeof *r->stacks));
    r->stacks = stacks;
    r->stacks[r->stack_count] = wanted;
    *out = (int32_t)r->stack_count++;
    enter(r->stack_table, r->stack_table_size, stack_hash(&wanted), *out);
    return TSR_OK;
}

/* Sets --------------------------------------------------------------------------------------- */

static bool is_end(uint64_t reading)
{
    const uint32_t state = (uint32_t)(reading >> 32);
    return state == TSR__READING_END || state == TSR__READING_LEFT;
}

/* Gives the set of these readings, which are in ascending order. */
static tsr_status find_set(tsr__readings *r, const uint64_t *readings, size_t count, int32_t *out)
{
    bool grown;
    if (count == 0) {
        *out = 0;
        return TSR_OK;
    }
    TSR__TRY(grow_table(&r->set_table, &r->set_table_size, r->set_count + 1, &grown));
    for (size_t i = 1; grown && i < r->set_count; i++)
        enter(r->set_table, r->set_table_size, set_hash(r, i), (int32_t)i);
    const uint64_t hash = hash_of(readings, count);
    const size_t mask = r->set_table_size - 1;
    for (size_t at = (size_t)hash & mask; r->set_table[at] != 0; at = (at + 1) & mask) {
        const tsr__reading_set *known = &r->sets[r->set_table[at] - 1];
        if (known->count == count &&
            memcmp(r->readings + known->first, readings, count * sizeof *readings) == 0) {
            *out = r->set_table[at] - 1;
            return TSR_OK;
        }
    }
    void *all = r->readings, *sets = r->sets;
    TSR__TRY(tsr__grow(&all, &r->reading_capacity, r->reading_count + count, sizeof *readings));
    r->readings = all;
    TSR__TRY(tsr__grow(&sets, &r->set_capacity, r->set_count + 1, sizeof *r->sets));
    r->sets = sets;
    /* The marks of ends are the largest readings. */
    r->sets[r->set_count] = (tsr__reading_set){
        .first = r->reading_count, .count = (uint32_t)count, .ends = is_end(readings[count - 1])};
    memcpy(r->readings + r->reading_count, readings, count * sizeof *readings);
    r->reading_count += count;
    *out = (int32_t)r->set_count++;
    enter(r->set_table, r->set_table_size, hash, *out);
    return TSR_OK;
}

tsr_status tsr__readings_init(tsr__readings *r)
{
    void *stacks = NULL, *sets = NULL;
    *r = (tsr__readings){0};
    TSR__TRY(tsr__grow(&stacks, &r->stack_capacity, TSR__STACKS, sizeof *r->stacks));
    r->stacks = stacks;
    TSR__TRY(tsr__grow(&sets, &r->set_capacity, 1, sizeof *r->sets));
    r->sets = sets;
    for (int32_t i = 0; i < TSR__STACKS; i++)
        r->stacks[i] = (tsr__stack_node){.below = -1, .state = -1};
    r->sets[0] = (tsr__reading_set){0};
    r->stack_count = TSR__STACKS;
    r->set_count = 1;
    return TSR_OK;
}

void tsr__readings_finish(tsr__readings *r)
{
    for (size_t i = 0; i < r->set_count; i++) {
        tsr__free(r->sets[i].nexts);
        if (r->sets[i].mask) {
            tsr__free(r->sets[i].mask->words);
            tsr__free(r->sets[i].mask->ends);
            tsr__free(r->sets[i].mask);
        }
    }
    tsr__free(r->stacks);
    tsr__free(r->stack_table);
    tsr__free(r->sets);
    tsr__free(r->set_table);
    tsr__free(r->readings);
    *r = (tsr__readings){0};
}

/* Following ---------------------------------------------------------------------------------- */

/* Returns the place of a reading in the hash table `entries`, or the free one where it belongs. An
 * entry is free if it is not of this search. */
static size_t place_of(const tsr__visit *entries, size_t size, uint64_t reading, uint64_t search)
{
    size_t at = (size_t)mix(reading) & (size - 1);
    while (entries[at].search == search && entries[at].reading != reading)
        at = (at + 1) & (size - 1);
    return at;
}

/* Notes a reading. *is_new is false if this search has visited it already. */
static tsr_status note_visit(tsr_grammar *g, uint64_t reading, size_t *visited, bool *is_new)
{
    if (2 * (*visited + 1) > g->visited_size) {
        const size_t size = g->visited_size > 0 ? 2 * g->visited_size : LEAST_TABLE;
        tsr__visit *larger = tsr__calloc(size, sizeof *larger);
        if (!larger)
            return TSR_ERR_NO_MEMORY;
        for (size_t i = 0; i < g->visited_size; i++)
            if (g->visited[i].search == g->search)
                larger[place_of(larger, size, g->visited[i].reading, g->search)] = g->visited[i];
        tsr__free(g->visited);
        g->visited = larger;
        g->visited_size = size;
    }
    tsr__visit *entry = &g->visited[place_of(g->visited, g->visited_size, reading, g->search)];
    *is_new = entry->search != g->search;
    *entry = (tsr__visit){reading, g->search};
    *visited += *is_new;
    return TSR_OK;
}

static tsr_status push(uint64_t **list, size_t *capacity, size_t *count, uint64_t reading)
{
    void *grown = *list;
    TSR__TRY(tsr__grow(&grown, capacity, *count + 1, sizeof **list));
    *list = grown;
    (*list)[(*count)++] = reading;
    return TSR_OK;
}

tsr_status tsr__too_ambiguous(void)
{
    return tsr__fail(TSR_ERR_OVERFLOW,
                     "grammar: it is too ambiguous: there are more than %d ways to read the text",
                     TSR_GRAMMAR_MAX_READINGS);
}

/* Follows a state that reads no byte: adds the next ones to g->work. */
static tsr_status follow(tsr_grammar *g, const tsr__state *state, int32_t stack, size_t *work)
{
    tsr__readings *r = &g->readings;
    const tsr__state *states = g->automaton.states;
    switch (state->kind) {
    case TSR__STATE_SPLIT:
        TSR__TRY(push(&g->work, &g->work_capacity, work, tsr__reading(state->next, stack)));
        return push(&g->work, &g->work_capacity, work, tsr__reading(state->other, stack));
    case TSR__STATE_CALL:
        /* A rule whose end is the end of the rule around it returns to where that one returns. */
        if (states[state->next].kind != TSR__STATE_END) {
            if (r->stacks[stack].depth >= TSR_GRAMMAR_MAX_DEPTH)
                return TSR_OK;
            TSR__TRY(find_stack(r, stack, state->next, &stack));
        }
        return push(&g->work, &g->work_capacity, work,
                    tsr__reading(g->automaton.starts[state->other], stack));
    default:
        if (stack == TSR__STACK_ROOT || stack == TSR__STACK_LOCAL)
            return push(&g->found, &g->found_capacity, &g->found_count,
                        tsr__reading((int32_t)(stack == TSR__STACK_ROOT ? TSR__READING_END
                                                                        : TSR__READING_LEFT),
                                     stack));
        return push(&g->work, &g->work_capacity, work,
                    tsr__reading(r->stacks[stack].state, r->stacks[stack].below));
    }
}

static int compare_readings(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts g->found and removes what is there twice. */
static void sort_found(tsr_grammar *g)
{
    size_t kept = 0;
    if (g->found_count > 1)
        qsort(g->found, g->found_count, sizeof *g->found, compare_readings);
    for (size_t i = 0; i < g->found_count; i++)
        if (i == 0 || g->found[i] != g->found[i - 1])
            g->found[kept++] = g->found[i];
    g->found_count = kept;
}

tsr_status tsr__readings_find(tsr_grammar *g, size_t count, const uint64_t *starts, int32_t *out)
{
    size_t work = 0, visited = 0;
    g->found_count = 0;
    g->search++;
    for (size_t i = 0; i < count; i++)
        TSR__TRY(push(&g->work, &g->work_capacity, &work, starts[i]));
    while (work > 0) {
        const uint64_t reading = g->work[--work];
        const tsr__state *state = &g->automaton.states[reading >> 32];
        bool is_new;
        TSR__TRY(note_visit(g, reading, &visited, &is_new));
        if (!is_new)
            continue;
        g->effort += TSR__READING_EFFORT;
        if (visited > 8 * (size_t)TSR_GRAMMAR_MAX_READINGS ||
            g->found_count >= TSR_GRAMMAR_MAX_READINGS || g->effort > TSR__MOST_EFFORT)
            return tsr__too_ambiguous();
        if (state->kind == TSR__STATE_BYTE)
            TSR__TRY(push(&g->found, &g->found_capacity, &g->found_count, reading));
        else
            TSR__TRY(follow(g, state, (int32_t)(uint32_t)reading, &work));
    }
    sort_found(g);
    return find_set(&g->readings, g->found, g->found_count, out);
}

tsr_status tsr__readings_step(tsr_grammar *g, int32_t set, uint8_t byte, int32_t *out)
{
    tsr__readings *r = &g->readings;
    const int classes = g->automaton.class_count;
    const uint8_t class = g->automaton.classes[byte];
    tsr__reading_set *from = &r->sets[set];
    if (set == 0 || (from->nexts && from->nexts[class] >= 0)) {
        *out = set == 0 ? 0 : from->nexts[class];
        return TSR_OK;
    }
    if (!from->nexts) {
        from->nexts = tsr__calloc((size_t)classes, sizeof *from->nexts);
        if (!from->nexts)
            return TSR_ERR_NO_MEMORY;
        for (int i = 0; i < classes; i++)
            from->nexts[i] = -1;
        r->bytes += (uint64_t)classes * sizeof *from->nexts;
    }
    /* The starts are taken before anything is found, which may move all arrays. */
    size_t count = 0;
    uint64_t few[32], *starts = few;
    if (from->count > sizeof few / sizeof *few) {
        starts = tsr__calloc(from->count, sizeof *starts);
        if (!starts)
            return TSR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < from->count; i++) {
        const uint64_t reading = r->readings[from->first + i];
        if (is_end(reading))
            continue;
        const tsr__state *state = &g->automaton.states[reading >> 32];
        if (byte >= state->low && byte <= state->high)
            starts[count++] = tsr__reading(state->next, (int32_t)(uint32_t)reading);
    }
    g->effort += (uint64_t)TSR__READING_EFFORT * from->count;
    const tsr_status status = tsr__readings_find(g, count, starts, out);
    if (starts != few)
        tsr__free(starts);
    TSR__TRY(status);
    r->sets[set].nexts[class] = *out;
    return TSR_OK;
}

/* Shrinking ---------------------------------------------------------------------------------- */

/* Copies a stack to `to`. moved[stack] is its number there, or −1. */
static tsr_status move_stack(const tsr__readings *from, tsr__readings *to, int32_t *moved,
                             int32_t stack, int32_t *out)
{
    int32_t path[TSR_GRAMMAR_MAX_DEPTH + 1];
    int length = 0;
    for (int32_t s = stack; moved[s] < 0; s = from->stacks[s].below)
        path[length++] = s;
    while (length > 0) {
        const int32_t s = path[--length];
        TSR__TRY(find_stack(to, moved[from->stacks[s].below], from->stacks[s].state, &moved[s]));
    }
    *out = moved[stack];
    return TSR_OK;
}

static tsr_status move_set(tsr_grammar *g, tsr__readings *to, int32_t *moved, int32_t set,
                           int32_t *out)
{
    const tsr__readings *from = &g->readings;
    const tsr__reading_set *s = &from->sets[set];
    g->found_count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const uint64_t reading = from->readings[s->first + i];
        int32_t stack;
        TSR__TRY(move_stack(from, to, moved, (int32_t)(uint32_t)reading, &stack));
        TSR__TRY(push(&g->found, &g->found_capacity, &g->found_count,
                      tsr__reading((int32_t)(reading >> 32), stack)));
    }
    sort_found(g);
    return find_set(to, g->found, g->found_count, out);
}

/* Copies the sets of all states to `to`, and their new numbers to sets[]. */
static tsr_status move_states(tsr_grammar *g, tsr__readings *to, int32_t *moved, int32_t *sets)
{
    size_t i = 0;
    TSR__TRY(tsr__readings_init(to));
    for (size_t s = 0; s < g->readings.stack_count; s++)
        moved[s] = s < TSR__STACKS ? (int32_t)s : -1;
    for (const tsr_grammar_state *s = g->states; s; s = s->after)
        TSR__TRY(move_set(g, to, moved, s->set, &sets[i++]));
    return TSR_OK;
}

bool tsr__readings_are_many(const tsr__readings *r)
{
    return r->bytes > MOST_BYTES / 8 || r->set_count > MOST_SETS / 2 ||
           r->stack_count > MOST_STACKS / 2;
}

tsr_status tsr__readings_shrink(tsr_grammar *g)
{
    tsr__readings kept = {0};
    size_t count = 0, i = 0;
    if (g->readings.bytes <= MOST_BYTES && g->readings.set_count <= MOST_SETS &&
        g->readings.stack_count <= MOST_STACKS)
        return TSR_OK;
    for (const tsr_grammar_state *s = g->states; s; s = s->after)
        count++;
    int32_t *moved = tsr__calloc(g->readings.stack_count, sizeof *moved);
    int32_t *sets = tsr__calloc(count, sizeof *sets);
    tsr_status status = moved && sets ? move_states(g, &kept, moved, sets) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        for (tsr_grammar_state *s = g->states; s; s = s->after)
            s->set = sets[i++];
        tsr__readings_finish(&g->readings);
        g->readings = kept;
    } else {
        tsr__readings_finish(&kept);
    }
    tsr__free(moved);
    tsr__free(sets);
    return status;
}
