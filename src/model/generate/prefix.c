#include "model/generate/prefix.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "gpu/internal.h"

typedef struct block {
    bool used;
    uint64_t hash; /* of its tokens, and of the block before it or the chain */
    uint64_t chain;
    int before;       /* TSR__PREFIX_NONE: it begins a prompt */
    int next;         /* in its bucket or, if it is not used, in the list of free blocks */
    int64_t snapshot; /* of the states after its tokens, which may have left */
    int sequences;    /* that use its pages. If there are none, it is in the list of idle blocks: */
    int older, newer;
} block;

struct tsr__prefix {
    tsr_kv_cache *cache;
    bool states;
    int64_t tokens_each, pages_each;
    int capacity, count;
    block *blocks;   /* [capacity] */
    int32_t *tokens; /* [capacity, tokens_each] */
    int32_t *pages;  /* [capacity, pages_each] */
    int *buckets;    /* [bucket_count]: the first block, or TSR__PREFIX_NONE */
    uint64_t bucket_count;
    int free; /* the first free block */
    /* The idle blocks, by the time at which the last sequence left them. A sequence leaves a block
     * before the one that this follows, so no block follows the oldest one. */
    int oldest, newest, idle_count;
};

void tsr__prefix_destroy(tsr__prefix **prefix)
{
    tsr__prefix *p = *prefix;
    if (!p)
        return;
    tsr__free(p->blocks);
    tsr__free(p->tokens);
    tsr__free(p->pages);
    tsr__free(p->buckets);
    tsr__free(p);
    *prefix = NULL;
}

static void forget_all(tsr__prefix *p)
{
    for (uint64_t i = 0; i < p->bucket_count; i++)
        p->buckets[i] = TSR__PREFIX_NONE;
    for (int i = 0; i < p->capacity; i++)
        p->blocks[i] = (block){.before = TSR__PREFIX_NONE,
                               .next = i + 1 < p->capacity ? i + 1 : TSR__PREFIX_NONE};
    p->free = p->capacity > 0 ? 0 : TSR__PREFIX_NONE;
    p->oldest = p->newest = TSR__PREFIX_NONE;
    p->count = p->idle_count = 0;
}

tsr_status tsr__prefix_create(tsr_kv_cache *cache, int64_t block_tokens, int64_t page_tokens,
                              int64_t pages, bool states, tsr__prefix **out)
{
    tsr__prefix *p = tsr__calloc(1, sizeof *p);
    if (!p)
        return TSR_ERR_NO_MEMORY;
    p->cache = cache;
    p->states = states;
    p->tokens_each = block_tokens;
    p->pages_each = block_tokens / page_tokens;
    p->capacity = (int)(pages / p->pages_each);
    for (p->bucket_count = 16; p->bucket_count < (uint64_t)p->capacity; p->bucket_count *= 2)
        continue;
    const size_t capacity = (size_t)p->capacity;
    p->blocks = tsr__calloc(capacity, sizeof *p->blocks);
    p->tokens = tsr__calloc(capacity, (size_t)p->tokens_each * sizeof *p->tokens);
    p->pages = tsr__calloc(capacity, (size_t)p->pages_each * sizeof *p->pages);
    p->buckets = tsr__calloc((size_t)p->bucket_count, sizeof *p->buckets);
    if (!p->blocks || !p->tokens || !p->pages || !p->buckets) {
        tsr__prefix_destroy(&p);
        return TSR_ERR_NO_MEMORY;
    }
    forget_all(p);
    *out = p;
    return TSR_OK;
}

static int32_t *pages_of(const tsr__prefix *p, int b)
{
    return p->pages + (int64_t)b * p->pages_each;
}

static int32_t *tokens_of(const tsr__prefix *p, int b)
{
    return p->tokens + (int64_t)b * p->tokens_each;
}

static void release_pages(const tsr__prefix *p, int b)
{
    tsr__kv_cache_release_snapshot(p->cache, p->blocks[b].snapshot);
    for (int64_t i = 0; i < p->pages_each; i++)
        tsr__kv_cache_release(p->cache, pages_of(p, b)[i]);
}

void tsr__prefix_clear(tsr__prefix *p)
{
    for (int b = 0; b < p->capacity; b++)
        if (p->blocks[b].used)
            release_pages(p, b);
    forget_all(p);
}

static uint64_t hash_of(const tsr__prefix *p, uint64_t chain, int before, const int32_t *tokens)
{
    uint64_t hash = TSR__HASH_START;
    if (before == TSR__PREFIX_NONE && chain != 0)
        hash = tsr__hash(hash, &chain, sizeof chain);
    if (before != TSR__PREFIX_NONE)
        hash = tsr__hash(hash, &p->blocks[before].hash, sizeof p->blocks[before].hash);
    for (int64_t i = 0; i < p->tokens_each; i++)
        hash = tsr__hash_word(hash, (uint32_t)tokens[i]);
    return hash;
}

static int *bucket_of(const tsr__prefix *p, uint64_t hash)
{
    return &p->buckets[(hash ^ hash >> 32) & (p->bucket_count - 1)];
}

int tsr__prefix_find(const tsr__prefix *p, uint64_t chain, int before, const int32_t *tokens)
{
    const uint64_t hash = hash_of(p, chain, before, tokens);
    int b = *bucket_of(p, hash);
    while (b != TSR__PREFIX_NONE &&
           (p->blocks[b].hash != hash || p->blocks[b].before != before ||
            p->blocks[b].chain != chain ||
            memcmp(tokens_of(p, b), tokens, (size_t)p->tokens_each * sizeof *tokens) != 0))
        b = p->blocks[b].next;
    return b;
}

/* Idle blocks ---------------------------------------------------------------------------------- */

static void add_idle(tsr__prefix *p, int b)
{
    p->blocks[b].older = p->newest;
    p->blocks[b].newer = TSR__PREFIX_NONE;
    *(p->newest != TSR__PREFIX_NONE ? &p->blocks[p->newest].newer : &p->oldest) = b;
    p->newest = b;
    p->idle_count++;
}

static void remove_idle(tsr__prefix *p, int b)
{
    const block *one = &p->blocks[b];
    *(one->older != TSR__PREFIX_NONE ? &p->blocks[one->older].newer : &p->oldest) = one->newer;
    *(one->newer != TSR__PREFIX_NONE ? &p->blocks[one->newer].older : &p->newest) = one->older;
    p->idle_count--;
}

static void begin_use(tsr__prefix *p, int b)
{
    if (p->blocks[b].sequences++ == 0)
        remove_idle(p, b);
}

bool tsr__prefix_resumable(const tsr__prefix *p, int b)
{
    return !p->states || tsr__kv_cache_has_snapshot(p->cache, p->blocks[b].snapshot);
}

tsr_status tsr__prefix_use(tsr__prefix *p, int b, int sequence, bool last)
{
    TSR__TRY(tsr__kv_cache_adopt(p->cache, sequence, p->pages_each, pages_of(p, b),
                                 last && p->states ? p->blocks[b].snapshot : TSR__NO_SNAPSHOT));
    begin_use(p, b);
    return TSR_OK;
}

int tsr__prefix_leave_last(tsr__prefix *p, int b)
{
    if (--p->blocks[b].sequences == 0)
        add_idle(p, b);
    return p->blocks[b].before;
}

void tsr__prefix_leave(tsr__prefix *p, int b)
{
    while (b != TSR__PREFIX_NONE)
        b = tsr__prefix_leave_last(p, b);
}

/* Uses a block whose tokens a sequence has computed again, because a snapshot was missing. */
static int join(tsr__prefix *p, int b, int sequence)
{
    if (!tsr__prefix_resumable(p, b))
        p->blocks[b].snapshot = tsr__kv_cache_hold_snapshot(p->cache, sequence);
    begin_use(p, b);
    return b;
}

int tsr__prefix_add(tsr__prefix *p, uint64_t chain, int before, const int32_t *tokens, int sequence)
{
    /* There are no more blocks than pages for them, and the sequence's pages belong to none. */
    const int b = p->free, known = tsr__prefix_find(p, chain, before, tokens);
    if (known != TSR__PREFIX_NONE && p->states)
        return join(p, known, sequence);
    if (b == TSR__PREFIX_NONE || known != TSR__PREFIX_NONE)
        return TSR__PREFIX_NONE;
    const uint64_t hash = hash_of(p, chain, before, tokens);
    int *bucket = bucket_of(p, hash);
    p->free = p->blocks[b].next;
    p->blocks[b] = (block){.used = true,
                           .hash = hash,
                           .chain = chain,
                           .before = before,
                           .next = *bucket,
                           .snapshot = p->states ? tsr__kv_cache_hold_snapshot(p->cache, sequence)
                                                 : TSR__NO_SNAPSHOT,
                           .sequences = 1};
    *bucket = b;
    memcpy(tokens_of(p, b), tokens, (size_t)p->tokens_each * sizeof *tokens);
    const int64_t end = tsr_kv_cache_length(p->cache, sequence) / (p->tokens_each / p->pages_each);
    for (int64_t i = 0; i < p->pages_each; i++) {
        pages_of(p, b)[i] = tsr__kv_cache_page(p->cache, sequence, end - p->pages_each + i);
        tsr__kv_cache_hold(p->cache, pages_of(p, b)[i]);
    }
    p->count++;
    return b;
}

bool tsr__prefix_evict(tsr__prefix *p)
{
    const int oldest = p->oldest;
    if (oldest == TSR__PREFIX_NONE)
        return false;
    block *gone = &p->blocks[oldest];
    int *link = bucket_of(p, gone->hash);
    while (*link != oldest)
        link = &p->blocks[*link].next;
    *link = gone->next;
    remove_idle(p, oldest);
    release_pages(p, oldest);
    *gone = (block){.before = TSR__PREFIX_NONE, .next = p->free};
    p->free = oldest;
    p->count--;
    return true;
}

int64_t tsr__prefix_evictable_pages(const tsr__prefix *p)
{
    return p->idle_count * p->pages_each;
}

int64_t tsr__prefix_pages(const tsr__prefix *p)
{
    return p->count * p->pages_each;
}
