/* Lines of JSONL files and sections of text files, one after the other or at an offset. A text file
 * is divided into sections that end with a line, so that a part of it can be read and encoded
 * without what is before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/data_document.h"
#include "cli/lib/memory.h"

#define SECTION_PER_TOKEN 4 /* bytes of a section for each token of the context */
#define LEAST_SECTION 4096

static bool ends_with(const char *path, const char *end)
{
    const size_t size = strlen(path), of_end = strlen(end);
    return size >= of_end && strcmp(path + size - of_end, end) == 0;
}

bool data_lines_open(data_lines *lines, const char *path, int64_t context)
{
    *lines = (data_lines){.path = path};
    lines->is_text =
        !ends_with(path, ".jsonl") && !ends_with(path, ".ndjson") && !ends_with(path, ".json");
    lines->section = (size_t)context * SECTION_PER_TOKEN;
    if (lines->section < LEAST_SECTION)
        lines->section = LEAST_SECTION;
    lines->file = fopen(path, "rb");
    return lines->file != NULL;
}

static void add_byte(data_lines *lines, char byte)
{
    if (lines->size + 1 >= lines->capacity) {
        lines->capacity = 2 * lines->capacity + 4096;
        lines->text = cli_resize(lines->text, lines->capacity, 1);
    }
    lines->text[lines->size++] = byte;
}

/* Removes the mark that some programs write at the start of a file of UTF-8. */
static void drop_byte_order_mark(data_lines *lines)
{
    if (lines->offset != 0 || lines->size < 3 || memcmp(lines->text, "\xef\xbb\xbf", 3) != 0)
        return;
    lines->size -= 3;
    memmove(lines->text, lines->text + 3, lines->size);
}

bool data_lines_next(data_lines *lines, bool *more)
{
    int byte = EOF;
    bool whole = false;
    lines->size = 0;
    lines->offset = lines->next;
    errno = 0;
    while (!whole && (byte = getc(lines->file)) != EOF) {
        lines->next++;
        whole = byte == '\n' && (!lines->is_text || lines->size + 1 >= lines->section);
        if (lines->next - lines->offset > DATA_MOST_LINE) {
            errno = 0;
            return false;
        }
        if (!whole || lines->is_text)
            add_byte(lines, (char)byte);
    }
    if (byte == EOF && ferror(lines->file))
        return false;
    *more = lines->next > lines->offset;
    if (!*more)
        return true;
    lines->number++;
    add_byte(lines, '\0');
    lines->size--;
    drop_byte_order_mark(lines);
    lines->text[lines->size] = '\0';
    return true;
}

bool data_lines_seek(data_lines *lines, uint64_t offset)
{
    lines->next = offset;
    return offset <= INT64_MAX && fseeko(lines->file, (off_t)offset, SEEK_SET) == 0;
}

void data_lines_close(data_lines *lines)
{
    if (lines->file != NULL)
        fclose(lines->file);
    free(lines->text);
    *lines = (data_lines){0};
}
