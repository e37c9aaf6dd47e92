#include "gpu/kv_cache/pages.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

static int64_t pages_for(const tsr__page_table *table, int64_t tokens)
{
    return tokens / table->page_tokens + (tokens % table->page_tokens != 0);
}

tsr_status tsr__pages_init(tsr__page_table *table, int64_t page_tokens, int64_t pages,
                           int sequences)
{
    *table = (tsr__page_table){
        .page_tokens = page_tokens, .pages = pages, .sequences = sequences, .free_count = pages};
    table->sequence = tsr__calloc((size_t)sequences, sizeof *table->sequence);
    table->references = tsr__calloc((size_t)pages, sizeof *table->references);
    table->free = tsr__calloc((size_t)pages, sizeof *table->free);
    if (!table->sequence || !table->references || !table->free) {
        tsr__pages_finish(table);
        return TSR_ERR_NO_MEMORY;
    }
    /* pages are taken from the end of the list, so put the lowest number last to use it first */
    for (int64_t i = 0; i < pages; i++)
        table->free[i] = (int32_t)(pages - 1 - i);
    return TSR_OK;
}

void tsr__pages_finish(tsr__page_table *table)
{
    for (int i = 0; table->sequence && i < table->sequences; i++)
        tsr__free(table->sequence[i].pages);
    tsr__free(table->sequence);
    tsr__free(table->references);
    tsr__free(table->free);
    *table = (tsr__page_table){0};
}

tsr__sequence *tsr__pages_find(const tsr__page_table *table, int sequence)
{
    const bool there = sequence >= 0 && sequence < table->sequences;
    return there && table->sequence[sequence].used ? &table->sequence[sequence] : NULL;
}

static tsr_status require(const tsr__page_table *table, int sequence, tsr__sequence **out)
{
    *out = tsr__pages_find(table, sequence);
    TSR__REQUIRE(*out, "kv_cache: there is no sequence %d", sequence);
    return TSR_OK;
}

static void release(tsr__page_table *table, int32_t page)
{
    if (--table->references[page] == 0)
        table->free[table->free_count++] = page;
}

/* Takes a free page for a sequence and returns its number. The caller must have checked that there
 * is one. */
static int32_t take(tsr__page_table *table)
{
    const int32_t page = table->free[--table->free_count];
    table->references[page] = 1;
    return page;
}

static tsr_status reserve(tsr__sequence *sequence, int64_t pages)
{
    void *array = sequence->pages;
    tsr_status status =
        tsr__grow(&array, &sequence->capacity, (size_t)pages, sizeof *sequence->pages);
    sequence->pages = array;
    return status;
}

tsr_status tsr__pages_add(tsr__page_table *table, int *out)
{
    for (int i = 0; i < table->sequences; i++)
        if (!table->sequence[i].used) {
            table->sequence[i].used = true;
            *out = i;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID,
                     "kv_cache: there are %d sequences already, the most there "
                     "can be",
                     table->sequences);
}

tsr_status tsr__pages_fork(tsr__page_table *table, int sequence, int *out)
{
    tsr__sequence *from;
    int number = -1;
    TSR__TRY(require(table, sequence, &from));
    TSR__TRY(tsr__pages_add(table, &number));
    tsr__sequence *to = &table->sequence[number];
    tsr_status status = reserve(to, from->count);
    if (status != TSR_OK) {
        to->used = false;
        return status;
    }
    to->length = from->length;
    to->count = from->count;
    for (int64_t i = 0; i < from->count; i++) {
        to->pages[i] = from->pages[i];
        table->references[to->pages[i]]++;
    }
    *out = number;
    return TSR_OK;
}

tsr_status tsr__pages_adopt(tsr__page_table *table, int sequence, int64_t count,
                            const int32_t *pages)
{
    tsr__sequence *to;
    TSR__TRY(require(table, sequence, &to));
    TSR__REQUIRE(to->length % table->page_tokens == 0,
                 "kv_cache: sequence %d has %lld tokens, so its last page of %lld is not full",
                 sequence, (long long)to->length, (long long)table->page_tokens);
    TSR__TRY(reserve(to, to->count + count));
    for (int64_t i = 0; i < count; i++) {
        tsr__pages_hold(table, pages[i]);
        to->pages[to->count++] = pages[i];
    }
    to->length += count * table->page_tokens;
    return TSR_OK;
}

void tsr__pages_hold(tsr__page_table *table, int32_t page)
{
    table->references[page]++;
}

void tsr__pages_release(tsr__page_table *table, int32_t page)
{
    release(table, page);
}

static void shorten(tsr__page_table *table, tsr__sequence *sequence, int64_t length)
{
    const int64_t count = pages_for(table, length);
    while (sequence->count > count)
        release(table, sequence->pages[--sequence->count]);
    sequence->length = length;
}

tsr_status tsr__pages_truncate(tsr__page_table *table, int sequence, int64_t length)
{
    tsr__sequence *found;
    TSR__TRY(require(table, sequence, &found));
    TSR__REQUIRE(length >= 0 && length <= found->length,
                 "kv_cache: sequence %d has %lld tokens; %lld cannot be left", sequence,
                 (long long)found->length, (long long)length);
    shorten(table, found, length);
    return TSR_OK;
}

tsr_status tsr__pages_remove(tsr__page_table *table, int sequence)
{
    tsr__sequence *found;
    TSR__TRY(require(table, sequence, &found));
    shorten(table, found, 0);
    found->used = false;
    return TSR_OK;
}

/* True if the sequence's next token belongs in its last page, and other sequences use that page,
 * too. */
static bool writes_to_shared(const tsr__page_table *table, const tsr__sequence *sequence)
{
    return sequence->length % table->page_tokens != 0 &&
           table->references[sequence->pages[sequence->count - 1]] > 1;
}

/* Checks the arguments of a step, and counts the free pages that it will take. */
static tsr_status count_pages(const tsr__page_table *table, int count, const int *sequences,
                              const int64_t *tokens, int64_t *out)
{
    int64_t needed = 0;
    for (int i = 0; i < count; i++) {
        tsr__sequence *sequence;
        TSR__TRY(require(table, sequences[i], &sequence));
        for (int k = 0; k < i; k++)
            TSR__REQUIRE(sequences[k] != sequences[i],
                         "kv_cache: sequence %d is named twice, as %d and %d of a step",
                         sequences[i], k, i);
        TSR__REQUIRE(tokens[i] >= 0 && tokens[i] <= INT32_MAX - sequence->length,
                     "kv_cache: %lld tokens for sequence %d, which has %lld; at most %d are "
                     "possible",
                     (long long)tokens[i], sequences[i], (long long)sequence->length, INT32_MAX);
        needed += pages_for(table, sequence->length + tokens[i]) - sequence->count;
        /* Count a page for a copy of the shared page. If all sequences that share it are in this
         * step, the last of them could write to the page itself; this count ignores that, so it may
         * be one page too high. */
        needed += tokens[i] > 0 && writes_to_shared(table, sequence);
    }
    *out = needed;
    return TSR_OK;
}

tsr_status tsr__pages_extend(tsr__page_table *table, int count, const int *sequences,
                             const int64_t *tokens, tsr__page_copy *copies)
{
    int64_t needed = 0;
    TSR__TRY(count_pages(table, count, sequences, tokens, &needed));
    if (needed > table->free_count)
        return tsr__fail(TSR_ERR_DEVICE_MEMORY,
                         "kv_cache: the step takes %lld pages of %lld tokens; %lld of %lld are "
                         "free",
                         (long long)needed, (long long)table->page_tokens,
                         (long long)table->free_count, (long long)table->pages);
    for (int i = 0; i < count; i++) {
        tsr__sequence *sequence = &table->sequence[sequences[i]];
        TSR__TRY(reserve(sequence, pages_for(table, sequence->length + tokens[i])));
    }
    for (int i = 0; i < count; i++) {
        tsr__sequence *sequence = &table->sequence[sequences[i]];
        copies[i] = (tsr__page_copy){-1, -1};
        if (tokens[i] > 0 && writes_to_shared(table, sequence)) {
            int32_t *page = &sequence->pages[sequence->count - 1];
            copies[i] = (tsr__page_copy){*page, take(table)};
            table->references[*page]--;
            *page = copies[i].to;
        }
        sequence->length += tokens[i];
        while (sequence->count < pages_for(table, sequence->length))
            sequence->pages[sequence->count++] = take(table);
    }
    return TSR_OK;
}

void tsr__pages_shrink(tsr__page_table *table, int count, const int *sequences,
                       const int64_t *tokens, const tsr__page_copy *copies)
{
    for (int i = count - 1; i >= 0; i--) {
        tsr__sequence *sequence = &table->sequence[sequences[i]];
        shorten(table, sequence, sequence->length - tokens[i]);
        if (copies[i].from < 0)
            continue;
        release(table, copies[i].to);
        table->references[copies[i].from]++;
        sequence->pages[sequence->count - 1] = copies[i].from;
    }
}
