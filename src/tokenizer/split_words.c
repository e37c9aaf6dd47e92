#include "tokenizer/split_words.h"

#include <stdio.h>

#include "base/alloc.h"
#include "tokenizer/unicode.h"

void tsr__word_splitter_set_name(tsr__word_splitter *splitter, const char *name)
{
    snprintf(splitter->name, sizeof splitter->name, "%s", name);
}

void tsr__word_list_finish(tsr__word_list *list)
{
    tsr__free(list->letters);
    tsr__free(list->ends);
    tsr__free(list->previous);
    *list = (tsr__word_list){0};
}

static tsr_status read_letters(const char *text, size_t size, tsr__word_list *list, size_t *count)
{
    size_t read = 0;
    for (size_t position = 0; position < size; read++) {
        void *letters = list->letters;
        TSR__TRY(tsr__grow(&letters, &list->letter_capacity, read + 1, sizeof *list->letters));
        list->letters = letters;
        tsr__letter *letter = &list->letters[read];
        letter->start = (uint32_t)position;
        position += tsr__character(text + position, size - position, &letter->code);
        letter->classes = tsr__classes(letter->code);
    }
    *count = read;
    return TSR_OK;
}

static tsr_status add_end(tsr__word_list *list, size_t end)
{
    void *ends = list->ends;
    TSR__TRY(tsr__grow(&ends, &list->capacity, list->count + 1, sizeof *list->ends));
    list->ends = ends;
    list->ends[list->count++] = end;
    return TSR_OK;
}

/* Splits characters start … end - 1 into words: each match of `match`, and each gap between
 * matches. */
static tsr_status split_word(tsr__matcher match, tsr__word_list *list, size_t start, size_t end)
{
    size_t gap = start;
    for (size_t position = start; position < end;) {
        size_t skip = 1, length = match(list->letters, position, end, &skip);
        if (length == 0) {
            position += skip;
            continue;
        }
        if (gap < position)
            TSR__TRY(add_end(list, position));
        gap = position += length;
        TSR__TRY(add_end(list, position));
    }
    return gap < end ? add_end(list, end) : TSR_OK;
}

tsr_status tsr__split_words(const tsr__word_splitter *splitter, const char *text, size_t size,
                            tsr__word_list *list)
{
    list->count = 0;
    if (size == 0)
        return TSR_OK;
    if (splitter->count == 0)
        return add_end(list, size);
    size_t letters = 0;
    TSR__TRY(read_letters(text, size, list, &letters));
    TSR__TRY(add_end(list, letters));
    for (int s = 0; s < splitter->count; s++) {
        size_t *before = list->ends, count = list->count, start = 0;
        size_t before_capacity = list->capacity;
        list->ends = list->previous;
        list->capacity = list->previous_capacity;
        list->previous = before;
        list->previous_capacity = before_capacity;
        list->count = 0;
        for (size_t i = 0; i < count; start = before[i++])
            TSR__TRY(split_word(splitter->steps[s], list, start, before[i]));
    }
    for (size_t i = 0; i < list->count; i++)
        list->ends[i] = list->ends[i] < letters ? list->letters[list->ends[i]].start : size;
    return TSR_OK;
}
