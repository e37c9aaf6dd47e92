#include "cli/training/characters.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/text.h"
#include "cli/training/training.h"
#include "tool_seam.h"

#define MAX_TEXT ((size_t)1 << 40) /* bytes */
#define MAX_CHARACTERS 65536       /* different ones */
#define CODES 0x110000             /* code points of Unicode */

tsr_status training_read_text(const char *path, char **out, size_t *size)
{
    size_t capacity = 1 << 16, used = 0, got;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return training_fail("%s: %s", path, strerror(errno));
    char *bytes = cli_alloc(capacity, 1);
    while ((got = fread(bytes + used, 1, capacity - used - 1, file)) > 0) {
        used += got;
        if (used + 1 == capacity)
            bytes = cli_resize(bytes, capacity *= 2, 1);
        if (used > MAX_TEXT)
            break;
    }
    const bool bad = ferror(file) != 0;
    const int error = errno;
    fclose(file);
    if (bad || used > MAX_TEXT) {
        free(bytes);
        return bad ? training_fail("%s: %s", path, strerror(error))
                   : training_fail("%s: the text has more than %zu bytes", path, MAX_TEXT);
    }
    bytes[used] = '\0';
    *out = bytes;
    *size = used;
    return TSR_OK;
}

/* Marks the characters of a text in is_known[CODES], and counts those that were not marked. */
static tsr_status mark_characters(const char *path, const char *bytes, size_t size, bool *is_known,
                                  int *count)
{
    for (size_t i = 0; i < size;) {
        uint32_t code = 0;
        const int used = cli_character(bytes + i, &code);
        if (used == 0)
            return training_fail("%s: the text is not UTF-8 at byte %zu", path, i);
        if (!is_known[code] && (*count)++ == MAX_CHARACTERS)
            return training_fail("%s: the text has more than %d different characters", path,
                                 MAX_CHARACTERS);
        is_known[code] = true;
        i += (size_t)used;
    }
    return TSR_OK;
}

tsr_status training_characters_add(training_characters *c, const char *path, const char *bytes,
                                   size_t size)
{
    bool *is_known = cli_alloc(CODES, sizeof *is_known);
    int count = c->count;
    for (int i = 0; i < c->count; i++)
        is_known[c->codes[i]] = true;
    const tsr_status status = mark_characters(path, bytes, size, is_known, &count);
    if (status == TSR_OK) {
        c->codes = cli_resize(c->codes, (size_t)count, sizeof *c->codes);
        c->count = 0;
        for (uint32_t code = 0; code < CODES; code++)
            if (is_known[code])
                c->codes[c->count++] = code;
    }
    free(is_known);
    return status;
}

void training_characters_encode(const training_characters *c, const char *bytes, size_t size,
                                int32_t **tokens, int64_t *count)
{
    int32_t *numbers = cli_alloc(CODES, sizeof *numbers), *out = cli_alloc(size + 1, sizeof *out);
    int64_t length = 0;
    for (int i = 0; i < c->count; i++)
        numbers[c->codes[i]] = i;
    for (size_t i = 0; i < size;) {
        uint32_t code = 0;
        i += (size_t)cli_character(bytes + i, &code);
        out[length++] = numbers[code];
    }
    free(numbers);
    *tokens = out;
    *count = length;
}

/* The vocabulary as a tokenizer --------------------------------------------------------------- */

/* Writes a character in UTF-8, and a zero after it. */
static void write_character(uint32_t code, char out[5])
{
    const int size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint32_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = size - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(first[size == 1 ? 0 : size] | code);
    out[size] = '\0';
}

/* Returns the text of a tokenizer.json: byte pairs without merges, so that each character is a
 * token. NULL: a character cannot be in JSON. */
static char *print_tokenizer(const training_characters *c)
{
    json_t *vocabulary = json_object();
    bool good = true;
    for (int i = 0; i < c->count; i++) {
        char text[5];
        write_character(c->codes[i], text);
        good = json_object_set_new(vocabulary, text, json_integer(i)) == 0 && good;
    }
    json_t *root =
        json_pack("{s:s, s:[], s:n, s:n, s:n, s:{s:s}, s:{s:s, s:n, s:b, s:b, s:o, s:[]}}",
                  "version", "1.0", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                  "decoder", "type", "Fuse", "model", "type", "BPE", "unk_token", "fuse_unk", 0,
                  "byte_fallback", 0, "vocab", vocabulary, "merges");
    char *text = good && root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

tsr_status training_characters_open(const training_characters *c, char **json,
                                    tsr_tokenizer **tokenizer)
{
    char *text = c->count > 0 && c->codes[0] == 0 ? NULL : print_tokenizer(c);
    if (text == NULL)
        return training_fail("the text has a character U+0000, which no vocabulary can have");
    tsr_tokenizer *created = tsr__tokenizer_create();
    tsr_status status = created != NULL
                            ? tsr__tokenizer_read_json(text, strlen(text), NULL, 0, created)
                            : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        *json = text;
        *tokenizer = created;
    } else {
        tsr_tokenizer_close(&created);
        free(text);
    }
    return status;
}
