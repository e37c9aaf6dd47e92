/* Masks that the grammars of a tokenizer share: those of states inside a string of JSON, where
 * nearly all tokens may follow. In all grammars with schemas these are the first states of the
 * automaton. A list that only grows is kept beside the tokenizer's trie. */
#include <stdatomic.h>
#include <string.h>

#include "grammar/grammar.h"

#define MOST_SHARED 64

typedef struct shared_mask {
    struct shared_mask *next;
    uint64_t *readings; /* [count] */
    size_t count;
    tsr__mask mask;
} shared_mask;

struct tsr__shared_masks {
    tsr__trie_guest guest;
    tsr__state *states; /* [state_count] */
    size_t state_count;
    _Atomic(shared_mask *) first;
    atomic_int count;
};

static void destroy_one(shared_mask *one)
{
    tsr__free(one->readings);
    tsr__free(one->mask.words);
    tsr__free(one->mask.ends);
    tsr__free(one);
}

static void destroy(tsr__trie_guest *guest)
{
    tsr__shared_masks *shared = (tsr__shared_masks *)guest;
    for (shared_mask *one = atomic_load(&shared->first), *next; one; one = next) {
        next = one->next;
        destroy_one(one);
    }
    tsr__free(shared->states);
    tsr__free(shared);
}

/* Creates the list of a tokenizer, for grammars whose automata begin as this one. */
static tsr_status create(const tsr__automaton *a, tsr__shared_masks **out)
{
    tsr__shared_masks *shared = tsr__calloc(1, sizeof *shared);
    if (!shared)
        return TSR_ERR_NO_MEMORY;
    shared->state_count = a->shared_count;
    shared->states = tsr__calloc(a->shared_count, sizeof *shared->states);
    if (!shared->states) {
        tsr__free(shared);
        return TSR_ERR_NO_MEMORY;
    }
    shared->guest.destroy = destroy;
    memcpy(shared->states, a->states, a->shared_count * sizeof *a->states);
    for (size_t i = 0; i < a->shared_count; i++) /* rules have other numbers in each grammar */
        if (a->states[i].kind == TSR__STATE_CALL)
            shared->states[i].other = 0;
    atomic_init(&shared->first, NULL);
    atomic_init(&shared->count, 0);
    *out = shared;
    return TSR_OK;
}

/* Returns whether the first states are those of the list. */
static bool fits(const tsr__shared_masks *shared, const tsr__automaton *a)
{
    bool same = shared->state_count == a->shared_count;
    for (size_t i = 0; i < a->shared_count && same; i++) {
        const tsr__state *x = &shared->states[i], *y = &a->states[i];
        same = x->kind == y->kind && x->low == y->low && x->high == y->high && x->next == y->next &&
               (x->kind == TSR__STATE_CALL || x->other == y->other);
    }
    return same;
}

tsr_status tsr__shared_masks_of(const tsr_grammar *g, tsr__shared_masks **out)
{
    tsr__trie_guest *known = atomic_load(&g->trie->guest);
    tsr__shared_masks *shared = NULL;
    *out = NULL;
    if (g->automaton.shared_count == 0)
        return TSR_OK;
    if (!known) {
        TSR__TRY(create(&g->automaton, &shared));
        if (atomic_compare_exchange_strong(&g->trie->guest, &known, &shared->guest))
            known = &shared->guest;
        else /* another thread was faster */
            destroy(&shared->guest);
    }
    shared = (tsr__shared_masks *)known;
    if (fits(shared, &g->automaton))
        *out = shared;
    return TSR_OK;
}

/* Returns whether a set depends on the shared states only. */
static bool is_shared(const tsr_grammar *g, const uint64_t *readings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((uint32_t)readings[i] != TSR__STACK_LOCAL ||
            (readings[i] >> 32 >= g->automaton.shared_count &&
             readings[i] >> 32 != TSR__READING_LEFT))
            return false;
    return g->shared != NULL && count > 0;
}

static const tsr__mask *find(const tsr_grammar *g, const uint64_t *readings, size_t count)
{
    for (const shared_mask *one = atomic_load(&g->shared->first); one; one = one->next)
        if (one->count == count && memcmp(one->readings, readings, count * sizeof *readings) == 0)
            return &one->mask;
    return NULL;
}

const tsr__mask *tsr__shared_mask_find(const tsr_grammar *g, const uint64_t *readings, size_t count)
{
    return is_shared(g, readings, count) ? find(g, readings, count) : NULL;
}

tsr_status tsr__shared_mask_add(const tsr_grammar *g, const uint64_t *readings, size_t count,
                                tsr__mask *mask, const tsr__mask **out)
{
    *out = NULL;
    if (!is_shared(g, readings, count) || find(g, readings, count) ||
        atomic_load(&g->shared->count) >= MOST_SHARED)
        return TSR_OK;
    shared_mask *one = tsr__calloc(1, sizeof *one);
    if (one)
        one->readings = tsr__calloc(count, sizeof *one->readings);
    if (!one || !one->readings) {
        tsr__free(one);
        return TSR_ERR_NO_MEMORY;
    }
    memcpy(one->readings, readings, count * sizeof *readings);
    one->count = count;
    one->mask = *mask;
    *mask = (tsr__mask){0};
    one->next = atomic_load(&g->shared->first);
    while (!atomic_compare_exchange_weak(&g->shared->first, &one->next, one))
        continue;
    atomic_fetch_add(&g->shared->count, 1);
    *out = &one->mask;
    return TSR_OK;
}
