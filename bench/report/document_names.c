/* Names runs by their files' names, with as many folders as necessary to make them different. */
#include <stdio.h>
#include <string.h>

#include "bench/report/document.h"

static size_t stem_length(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".json") == 0 ? length - 5 : length;
}

/* Returns the end of the path: the file's name with `folders` folders before it. */
static const char *tail_of(const char *path, int folders)
{
    const char *cursor = path + strlen(path);
    while (cursor > path && (cursor[-1] != '/' || folders-- > 0))
        cursor--;
    return cursor;
}

static bool same_tail(const char *a, const char *b, int folders)
{
    const char *one = tail_of(a, folders), *other = tail_of(b, folders);
    size_t length = stem_length(one);
    return length == stem_length(other) && memcmp(one, other, length) == 0;
}

/* Returns true if another path has the same end. The same path given twice does not count, since
 * folders cannot distinguish it. */
static bool is_ambiguous(const bench_document *documents, int count, const char *path, int folders)
{
    for (int i = 0; i < count; i++)
        if (strcmp(documents[i].path, path) != 0 && same_tail(documents[i].path, path, folders))
            return true;
    return false;
}

static bool is_taken(const bench_document *documents, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(documents[i].name, name) == 0)
            return true;
    return false;
}

/* Writes the name. If it is too long, only its end is written, because that is the most specific
 * part of a path. */
static void write_name(char name[BENCH_NAME], const char *tail, int number)
{
    static const char ellipsis[] = "…";
    const size_t room = BENCH_NAME - sizeof ellipsis - sizeof " (100000)";
    size_t length = stem_length(tail);
    const char *from = length > room ? tail + length - room : tail;
    while (((unsigned char)*from & 0xc0) == 0x80) /* do not start in the middle of a character */
        from++;
    int used = snprintf(name, BENCH_NAME, "%s%.*s", from != tail ? ellipsis : "",
                        (int)(tail + length - from), from);
    if (number > 1)
        snprintf(name + used, BENCH_NAME - (size_t)used, " (%d)", number);
}

void bench_documents_name(bench_document *documents, int count)
{
    for (int i = 0; i < count; i++) {
        const char *path = documents[i].path;
        int folders = 0, number = 1;
        while (tail_of(path, folders) > path && is_ambiguous(documents, count, path, folders))
            folders++;
        do
            write_name(documents[i].name, tail_of(path, folders), number++);
        while (is_taken(documents, i, documents[i].name));
    }
}
