#include "tokenizer/bpe_merge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void tsr__merges_finish(tsr__merges *merges)
{
    tsr__free(merges->pairs);
    tsr__free(merges->starts);
    tsr__free(merges->ranks);
    *merges = (tsr__merges){0};
}

tsr_status tsr__merges_add(tsr__merges *merges, int32_t left, int32_t right, int32_t merged)
{
    void *pairs = merges->pairs;
    TSR__REQUIRE(merges->count < TSR__NEVER, "tokenizer: %zu merges are too many", merges->count);
    TSR__TRY(tsr__grow(&pairs, &merges->capacity, merges->count + 1, sizeof *merges->pairs));
    merges->pairs = pairs;
    merges->pairs[merges->count] = (tsr__pair){
        .left = left, .right = right, .merged = merged, .rank = (uint32_t)merges->count};
    merges->count++;
    return TSR_OK;
}

tsr_status tsr__merges_add_spelled(tsr__merges *merges, const tsr__vocabulary *vocabulary,
                                   uint64_t number, const char *left, size_t left_size,
                                   const char *right, size_t right_size)
{
    char merged[2 * TSR_TOKENIZER_MAX_TOKEN_BYTES];
    char shown[TSR__SPELLING_TEXT], other[TSR__SPELLING_TEXT];
    const size_t limit = TSR_TOKENIZER_MAX_TOKEN_BYTES;
    int32_t ids[3] = {-1, -1, -1};
    TSR__REQUIRE(left_size > 0 && right_size > 0 && left_size <= limit && right_size <= limit,
                 "tokenizer: merge %" PRIu64 ", %s, is not two tokens", number,
                 tsr__spelling_text(left, left_size, shown));
    memcpy(merged, left, left_size);
    memcpy(merged + left_size, right, right_size);
    ids[0] = tsr__vocabulary_find(vocabulary, left, left_size);
    ids[1] = tsr__vocabulary_find(vocabulary, right, right_size);
    ids[2] = tsr__vocabulary_find(vocabulary, merged, left_size + right_size);
    TSR__REQUIRE(ids[0] >= 0 && ids[1] >= 0,
                 "tokenizer: merge %" PRIu64 " is of %s and %s; the %s is no token", number,
                 tsr__spelling_text(left, left_size, shown),
                 tsr__spelling_text(right, right_size, other), ids[0] < 0 ? "first" : "second");
    TSR__REQUIRE(ids[2] >= 0,
                 "tokenizer: merge %" PRIu64 " is of %s and %s, whose union is no token", number,
                 tsr__spelling_text(left, left_size, shown),
                 tsr__spelling_text(right, right_size, other));
    return tsr__merges_add(merges, ids[0], ids[1], ids[2]);
}

static int compare_pairs(const void *a, const void *b)
{
    const tsr__pair *left = a, *right = b;
    if (left->left != right->left)
        return left->left < right->left ? -1 : 1;
    if (left->right != right->right)
        return left->right < right->right ? -1 : 1;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

tsr_status tsr__merges_sort(tsr__merges *merges, size_t tokens, bool last_counts)
{
    merges->starts = tsr__calloc(tokens + 1, sizeof *merges->starts);
    if (merges->starts == NULL)
        return TSR_ERR_NO_MEMORY;
    if (merges->count > 0)
        qsort(merges->pairs, merges->count, sizeof *merges->pairs, compare_pairs);
    size_t kept = 0;
    for (size_t i = 0; i < merges->count; i++) {
        const tsr__pair *pair = &merges->pairs[i];
        bool again = kept > 0 && merges->pairs[kept - 1].left == pair->left &&
                     merges->pairs[kept - 1].right == pair->right;
        if (again && !last_counts)
            continue;
        merges->pairs[again ? kept - 1 : kept] = *pair;
        kept += !again;
    }
    merges->count = kept;
    for (size_t i = 0; i < kept; i++)
        merges->starts[merges->pairs[i].left + 1]++;
    for (size_t t = 0; t < tokens; t++)
        merges->starts[t + 1] += merges->starts[t];
    return TSR_OK;
}

static int compare_ranks(const void *a, const void *b)
{
    const tsr__pair *left = a, *right = b;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

tsr_status tsr__merges_in_order(const tsr__merges *merges, tsr__pair **out)
{
    tsr__pair *pairs = tsr__calloc(merges->count, sizeof *pairs);
    if (pairs == NULL)
        return TSR_ERR_NO_MEMORY;
    if (merges->count > 0) {
        memcpy(pairs, merges->pairs, merges->count * sizeof *pairs);
        qsort(pairs, merges->count, sizeof *pairs, compare_ranks);
    }
    *out = pairs;
    return TSR_OK;
}

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int compare_scores(const void *a, const void *b)
{
    const scored *left = a, *right = b;
    return left->score > right->score ? -1 : left->score < right->score;
}

tsr_status tsr__merges_by_scores(tsr__merges *merges, const tsr__vocabulary *vocabulary,
                                 const float *scores)
{
    size_t count = vocabulary->count;
    for (size_t i = 0; i < count; i++)
        TSR__REQUIRE(scores[i] == scores[i], "tokenizer: the score of token %zu is not a number",
                     i);
    scored *order = tsr__calloc(count, sizeof *order);
    merges->ranks = tsr__calloc(count, sizeof *merges->ranks);
    if (order == NULL || merges->ranks == NULL) {
        tsr__free(order);
        return TSR_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        order[i] = (scored){.score = scores[i], .id = (uint32_t)i};
    qsort(order, count, sizeof *order, compare_scores);
    uint32_t rank = 0;
    for (size_t i = 0; i < count; i++) {
        tsr__token_type type = vocabulary->tokens[order[i].id].type;
        bool merges_to =
            type == TSR__TOKEN_NORMAL || type == TSR__TOKEN_USER || type == TSR__TOKEN_UNUSED;
        rank += i > 0 && order[i].score < order[i - 1].score;
        merges->ranks[order[i].id] = merges_to ? rank : TSR__NEVER;
    }
    tsr__free(order);
    return TSR_OK;
}

/* Merging -------------------------------------------------------------------------------------- */

void tsr__merge_work_finish(tsr__merge_work *work)
{
    tsr__free(work->symbols);
    tsr__free(work->heap);
    *work = (tsr__merge_work){0};
}

tsr_status tsr__merge_symbol(tsr__merge_work *work, size_t start, size_t size, int32_t id)
{
    void *symbols = work->symbols;
    TSR__TRY(tsr__grow(&symbols, &work->capacity, work->count + 1, sizeof *work->symbols));
    work->symbols = symbols;
    work->symbols[work->count] = (tsr__symbol){.start = (uint32_t)start,
                                               .size = (uint32_t)size,
                                               .previous = (uint32_t)work->count - 1,
                                               .next = (uint32_t)work->count + 1,
                                               .id = id};
    work->count++;
    return TSR_OK;
}

/* Returns the rank of a pair of neighbours and sets *merged, or returns TSR__NEVER. */
static uint32_t rank_of(const tsr__merges *merges, const tsr__vocabulary *vocabulary,
                        const char *text, const tsr__symbol *left, const tsr__symbol *right,
                        int32_t *merged)
{
    if (merges->ranks != NULL) {
        *merged =
            tsr__vocabulary_find(vocabulary, text + left->start, (size_t)left->size + right->size);
        return *merged >= 0 ? merges->ranks[*merged] : TSR__NEVER;
    }
    if (left->id < 0 || right->id < 0)
        return TSR__NEVER;
    size_t low = merges->starts[left->id], high = merges->starts[left->id + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const tsr__pair *pair = &merges->pairs[middle];
        if (pair->right == right->id) {
            *merged = pair->merged;
            return pair->rank;
        }
        if (pair->right < right->id)
            low = middle + 1;
        else
            high = middle;
    }
    return TSR__NEVER;
}

/* The heap of candidates: the one of the lowest order is at its top. */

static tsr_status heap_push(tsr__merge_work *work, tsr__candidate candidate)
{
    void *memory = work->heap;
    TSR__TRY(tsr__grow(&memory, &work->heap_capacity, work->heap_count + 1, sizeof *work->heap));
    tsr__candidate *heap = work->heap = memory;
    size_t place = work->heap_count++;
    while (place > 0 && heap[(place - 1) / 2].order > candidate.order) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = candidate;
    return TSR_OK;
}

static tsr__candidate heap_pop(tsr__merge_work *work)
{
    tsr__candidate *heap = work->heap, first = heap[0], last = heap[--work->heap_count];
    size_t place = 0, count = work->heap_count;
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        child += child + 1 < count && heap[child + 1].order < heap[child].order;
        if (heap[child].order >= last.order)
            break;
        heap[place] = heap[child];
    }
    heap[place] = last;
    return first;
}

/* Adds symbol number `left` and its right neighbour to the candidates, if they merge. */
static tsr_status add_candidate(const tsr__merges *merges, const tsr__vocabulary *vocabulary,
                                const char *text, tsr__merge_work *work, uint32_t left)
{
    const tsr__symbol *symbol = &work->symbols[left];
    if (symbol->next >= work->count)
        return TSR_OK;
    const tsr__symbol *right = &work->symbols[symbol->next];
    int32_t merged = -1;
    const uint32_t rank = rank_of(merges, vocabulary, text, symbol, right, &merged);
    if (rank == TSR__NEVER)
        return TSR_OK;
    return heap_push(work, (tsr__candidate){.order = (uint64_t)rank << 32 | left,
                                            .size = symbol->size + right->size,
                                            .merged = merged});
}

tsr_status tsr__merge(const tsr__merges *merges, const tsr__vocabulary *vocabulary,
                      const char *text, tsr__merge_work *work)
{
    tsr__symbol *symbols = work->symbols;
    work->heap_count = 0;
    for (size_t i = 0; i + 1 < work->count; i++)
        TSR__TRY(add_candidate(merges, vocabulary, text, work, (uint32_t)i));
    while (work->heap_count > 0) {
        const tsr__candidate best = heap_pop(work);
        const uint32_t index = (uint32_t)best.order;
        tsr__symbol *left = &symbols[index];
        /* Symbols only grow, by whole neighbours. The candidate was therefore made for this pair
         * if, and only if, the size of both together is still the same. */
        if (left->size == 0 || left->next >= work->count ||
            left->size + symbols[left->next].size != best.size)
            continue;
        tsr__symbol *right = &symbols[left->next];
        left->size = best.size;
        left->id = best.merged;
        left->next = right->next;
        right->size = 0;
        if (left->next < work->count)
            symbols[left->next].previous = index;
        TSR__TRY(add_candidate(merges, vocabulary, text, work, index));
        if (index > 0)
            TSR__TRY(add_candidate(merges, vocabulary, text, work, left->previous));
    }
    return TSR_OK;
}
