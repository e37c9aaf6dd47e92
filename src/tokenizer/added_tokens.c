#include "tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/unicode.h"

void tsr__added_finish(tsr__added *added)
{
    tsr__free(added->tokens);
    tsr__free(added->strings.data);
    *added = (tsr__added){0};
}

tsr_status tsr__added_add(tsr__added *added, const char *text, size_t size,
                          const tsr__added_token *token)
{
    void *tokens = added->tokens;
    if (size == 0)
        return TSR_OK;
    TSR__TRY(tsr__grow(&tokens, &added->capacity, added->count + 1, sizeof *added->tokens));
    added->tokens = tokens;
    tsr__added_token *to = &added->tokens[added->count];
    *to = *token;
    to->size = (uint32_t)size;
    TSR__TRY(tsr__strings_add(&added->strings, text, size, &to->start));
    added->count++;
    return TSR_OK;
}

static int compare_texts(const tsr__added *added, const tsr__added_token *a,
                         const tsr__added_token *b)
{
    const char *strings = added->strings.data;
    size_t size = a->size < b->size ? a->size : b->size;
    int order = memcmp(strings + a->start, strings + b->start, size);
    if (order != 0)
        return order;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start; /* the order in which they were added */
}

/* Heap sort is used because the comparison needs the strings of `added`, and qsort cannot pass them
 * to its comparison function. */
static void sift(tsr__added *added, size_t index, size_t count)
{
    for (size_t child; (child = 2 * index + 1) < count; index = child) {
        tsr__added_token *tokens = added->tokens, kept = tokens[index];
        child += child + 1 < count && compare_texts(added, &tokens[child], &tokens[child + 1]) < 0;
        if (compare_texts(added, &tokens[index], &tokens[child]) >= 0)
            return;
        tokens[index] = tokens[child];
        tokens[child] = kept;
    }
}

static void heap_sort(tsr__added *added)
{
    for (size_t i = added->count / 2; i-- > 0;)
        sift(added, i, added->count);
    for (size_t i = added->count; i-- > 1;) {
        tsr__added_token largest = added->tokens[0];
        added->tokens[0] = added->tokens[i];
        added->tokens[i] = largest;
        sift(added, 0, i);
    }
}

static bool same_text(const tsr__added *added, const tsr__added_token *a, const tsr__added_token *b)
{
    const char *strings = added->strings.data;
    return a->size == b->size && memcmp(strings + a->start, strings + b->start, a->size) == 0;
}

void tsr__added_sort(tsr__added *added)
{
    size_t kept = 0;
    heap_sort(added);
    for (size_t i = 0; i < added->count; i++)
        if (kept == 0 || !same_text(added, &added->tokens[kept - 1], &added->tokens[i]))
            added->tokens[kept++] = added->tokens[i];
    added->count = kept;
    memset(added->first, 0, sizeof added->first);
    for (size_t i = 0; i < added->count; i++)
        added->first[(unsigned char)added->strings.data[added->tokens[i].start] + 1]++;
    for (int b = 0; b < 256; b++)
        added->first[b + 1] += added->first[b];
}

/* Returns the byte at `place` of token i's text, or -1 after its end. */
static int byte_at(const tsr__added *added, size_t i, size_t place)
{
    const tsr__added_token *token = &added->tokens[i];
    return place < token->size ? (unsigned char)added->strings.data[token->start + place] : -1;
}

/* Returns the index of the first of the tokens low … high - 1 whose byte at `place` is at least
 * `byte`, or `high` if there is none. */
static size_t lower_bound(const tsr__added *added, size_t low, size_t high, size_t place, int byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (byte_at(added, middle, place) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const tsr__text_range all_text[] = {{0, SIZE_MAX}};
const tsr__text_ranges tsr__everywhere = {.ranges = all_text, .count = 1};

bool tsr__text_ranges_contain(const tsr__text_ranges *ranges, size_t start, size_t end)
{
    size_t low = 0, high = ranges->count; /* search for the first range that ends after `start` */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ranges->ranges[middle].end <= start)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ranges->count && ranges->ranges[low].start <= start &&
           end <= ranges->ranges[low].end;
}

static bool is_alone(const char *text, size_t size, size_t start, size_t end)
{
    return !tsr__word_ends(text, start) && !tsr__word_starts(text + end, size - end);
}

/* Returns the longest token whose text starts at `place_in_text`, or NULL. */
static const tsr__added_token *longest_at(const tsr__added *added, const tsr__text_ranges *control,
                                          const char *text, size_t size, size_t place_in_text)
{
    const tsr__added_token *longest = NULL;
    int byte = (unsigned char)text[place_in_text];
    size_t low = added->first[byte], high = added->first[byte + 1];
    for (size_t place = 1; low < high; place++) {
        /* All tokens low … high - 1 have the same first `place` bytes, and the token at `low` is
         * the shortest. */
        const tsr__added_token *token = &added->tokens[low];
        if (token->size == place) {
            if ((!token->control ||
                 tsr__text_ranges_contain(control, place_in_text, place_in_text + place)) &&
                (!token->single_word || is_alone(text, size, place_in_text, place_in_text + place)))
                longest = token;
            low++;
        }
        if (place_in_text + place == size)
            break;
        byte = (unsigned char)text[place_in_text + place];
        low = lower_bound(added, low, high, place, byte);
        high = lower_bound(added, low, high, place, byte + 1);
    }
    return longest;
}

bool tsr__added_search(const tsr__added *added, const tsr__text_ranges *control, const char *text,
                       size_t size, size_t from, tsr__found *found)
{
    if (added->count == 0)
        return false;
    for (size_t place_in_text = from; place_in_text < size; place_in_text++) {
        unsigned char byte = (unsigned char)text[place_in_text];
        if (added->first[byte] == added->first[byte + 1])
            continue;
        const tsr__added_token *token = longest_at(added, control, text, size, place_in_text);
        if (token == NULL)
            continue;
        size_t end = place_in_text + token->size;
        *found = (tsr__found){.start = place_in_text, .end = end, .id = token->id};
        if (token->strip_left)
            found->start = from + tsr__trim_end(text + from, place_in_text - from);
        if (token->strip_right)
            found->end = end + tsr__trim_start(text + end, size - end);
        return true;
    }
    return false;
}
