#include "tokenizer/split_words.h"

#include <stdio.h>

#include "base/alloc.h"
#include "tokenizer/unicode.h"

void tsr__words_set_name(tsr__words *words, const char *name)
{
    snprintf(words->name, sizeof words->name, "%s", name);
}

void tsr__pieces_finish(tsr__pieces *pieces)
{
    tsr__free(pieces->letters);
    tsr__free(pieces->ends);
    tsr__free(pieces->other);
    *pieces = (tsr__pieces){0};
}

static tsr_status read_letters(const char *text, size_t size, tsr__pieces *pieces, size_t *count)
{
    size_t read = 0;
    for (size_t at = 0; at < size; read++) {
        void *letters = pieces->letters;
        TSR__TRY(tsr__grow(&letters, &pieces->letter_capacity, read + 1, sizeof *pieces->letters));
        pieces->letters = letters;
        tsr__letter *letter = &pieces->letters[read];
        letter->start = (uint32_t)at;
        at += tsr__character(text + at, size - at, &letter->code);
        letter->classes = tsr__classes(letter->code);
    }
    *count = read;
    return TSR_OK;
}

static tsr_status add_end(tsr__pieces *pieces, size_t end)
{
    void *ends = pieces->ends;
    TSR__TRY(tsr__grow(&ends, &pieces->capacity, pieces->count + 1, sizeof *pieces->ends));
    pieces->ends = ends;
    pieces->ends[pieces->count++] = end;
    return TSR_OK;
}

/* Cuts characters start … end - 1 into pieces: each match of `match`, and each gap between
 * matches. */
static tsr_status cut_piece(tsr__matcher match, tsr__pieces *pieces, size_t start, size_t end)
{
    size_t gap = start;
    for (size_t at = start; at < end;) {
        size_t skip = 1, length = match(pieces->letters, at, end, &skip);
        if (length == 0) {
            at += skip;
            continue;
        }
        if (gap < at)
            TSR__TRY(add_end(pieces, at));
        gap = at += length;
        TSR__TRY(add_end(pieces, at));
    }
    return gap < end ? add_end(pieces, end) : TSR_OK;
}

tsr_status tsr__words_cut(const tsr__words *words, const char *text, size_t size,
                          tsr__pieces *pieces)
{
    pieces->count = 0;
    if (size == 0)
        return TSR_OK;
    if (words->count == 0)
        return add_end(pieces, size);
    size_t letters = 0;
    TSR__TRY(read_letters(text, size, pieces, &letters));
    TSR__TRY(add_end(pieces, letters));
    for (int s = 0; s < words->count; s++) {
        size_t *before = pieces->ends, count = pieces->count, start = 0;
        size_t before_capacity = pieces->capacity;
        pieces->ends = pieces->other;
        pieces->capacity = pieces->other_capacity;
        pieces->other = before;
        pieces->other_capacity = before_capacity;
        pieces->count = 0;
        for (size_t i = 0; i < count; start = before[i++])
            TSR__TRY(cut_piece(words->steps[s], pieces, start, before[i]));
    }
    for (size_t i = 0; i < pieces->count; i++)
        pieces->ends[i] = pieces->ends[i] < letters ? pieces->letters[pieces->ends[i]].start : size;
    return TSR_OK;
}
