#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

#define FILE_MAX ((size_t)1 << 30) /* bytes */
#define UNICODE_MAX 0x10FFFF

typedef struct failure {
    char *text;
    size_t size;
} failure;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
fail(const failure *into, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(into->text, into->size, format, arguments);
    va_end(arguments);
    return false;
}

/* Decodes the character at the start of bytes[size] to *character. Returns its length, or 0 for
 * anything that is not valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
static size_t decode(const char *bytes, size_t size, uint32_t *character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)bytes[0];
    size_t length = first < 0x80 ? 1 : first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length == 0 || length > size || first > 0xF4)
        return 0;
    uint32_t value = length == 1 ? first : first & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        unsigned char next = (unsigned char)bytes[i];
        if ((next & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3F);
    }
    if (value < least[length] || value > UNICODE_MAX || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *character = value;
    return length;
}

/* Decodes bytes[size] to out[size]. Returns the number of characters, or −1 for invalid UTF-8. */
static int64_t decode_all(const char *name, const char *bytes, size_t size, uint32_t *out,
                          const failure *error)
{
    int64_t count = 0;
    for (size_t at = 0; at < size;) {
        size_t length = decode(bytes + at, size - at, &out[count]);
        if (length == 0) {
            fail(error, "%s: byte %zu, 0x%02x, is not UTF-8", name, at, (unsigned char)bytes[at]);
            return -1;
        }
        at += length;
        count++;
    }
    return count;
}

/* Returns the token of a character, or −1. */
static int32_t find(const gpt_text *text, uint32_t character)
{
    int low = 0, high = text->vocabulary;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (text->characters[middle] < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < text->vocabulary && text->characters[low] == character ? low : -1;
}

/* Collects the distinct characters of characters[count] in ascending order. */
static bool collect_vocabulary(gpt_text *text, const uint32_t *characters, int64_t count)
{
    uint8_t *seen = calloc(UNICODE_MAX / 8 + 1, 1);
    if (!seen)
        return false;
    for (int64_t i = 0; i < count; i++) {
        uint8_t bit = (uint8_t)(1u << characters[i] % 8);
        text->vocabulary += !(seen[characters[i] / 8] & bit);
        seen[characters[i] / 8] |= bit;
    }
    text->characters = malloc((size_t)text->vocabulary * sizeof *text->characters);
    int filled = 0;
    for (uint32_t c = 0; text->characters && c <= UNICODE_MAX; c++)
        if (seen[c / 8] >> c % 8 & 1)
            text->characters[filled++] = c;
    free(seen);
    return text->characters != NULL;
}

static bool tokenize(const char *path, const char *bytes, size_t size, int block, gpt_text *text,
                     const failure *error)
{
    uint32_t *characters = malloc((size + 1) * sizeof *characters);
    if (!characters)
        return fail(error, "%s: out of memory", path);
    text->count = decode_all(path, bytes, size, characters, error);
    text->train = text->count - (text->count + 9) / 10;
    bool good = text->count >= 0;
    if (good && text->count == 0)
        good = fail(error, "%s: the file is empty", path);
    /* A window needs one more character, which is only predicted. */
    if (good && text->count - text->train <= block)
        good = fail(error,
                    "%s: of %lld characters the last tenth, %lld, is held out; a block of %d needs "
                    "at least %d there",
                    path, (long long)text->count, (long long)(text->count - text->train), block,
                    block + 1);
    if (good) {
        text->tokens = malloc((size_t)text->count * sizeof *text->tokens);
        good = text->tokens && collect_vocabulary(text, characters, text->count);
        if (!good)
            fail(error, "%s: out of memory", path);
    }
    for (int64_t i = 0; good && i < text->count; i++)
        text->tokens[i] = find(text, characters[i]);
    free(characters);
    return good;
}

bool text_read(const char *path, int block, gpt_text *out, char *error, size_t error_size)
{
    const failure into = {error, error_size};
    gpt_text text = {0};
    char *bytes;
    size_t size;
    if (!read_file(path, FILE_MAX, &bytes, &size, error, error_size))
        return false;
    bool good = tokenize(path, bytes, size, block, &text, &into);
    free(bytes);
    if (good)
        *out = text;
    else
        text_free(&text);
    return good;
}

void text_free(gpt_text *text)
{
    free(text->tokens);
    free(text->characters);
    *text = (gpt_text){0};
}

bool text_encode(const gpt_text *text, const char *string, int32_t **tokens, int64_t *count,
                 char *error, size_t error_size)
{
    const failure into = {error, error_size};
    size_t size = strlen(string);
    uint32_t *characters = malloc((size + 1) * sizeof *characters);
    int32_t *found = malloc((size + 1) * sizeof *found);
    bool good = characters && found;
    int64_t length = 0;
    if (!good)
        fail(&into, "out of memory");
    else if (size == 0)
        good = fail(&into, "the prompt is empty");
    if (good) {
        length = decode_all("the prompt", string, size, characters, &into);
        good = length >= 0;
    }
    for (int64_t i = 0; good && i < length; i++) {
        found[i] = find(text, characters[i]);
        if (found[i] < 0)
            good = fail(&into, "the prompt has the character U+%04X, which the text does not have",
                        (unsigned)characters[i]);
    }
    free(characters);
    if (!good) {
        free(found);
        return false;
    }
    *tokens = found;
    *count = length;
    return true;
}

/* Writes a character in UTF-8 to bytes, and returns its length. */
static int write_character(uint32_t c, char bytes[4])
{
    if (c < 0x80) {
        bytes[0] = (char)c;
        return 1;
    }
    const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint32_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = length - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    bytes[0] = (char)(first[length] | c);
    return length;
}

void text_print(const gpt_text *text, int32_t token, FILE *file)
{
    char bytes[4];
    fwrite(bytes, 1, (size_t)write_character(text->characters[token], bytes), file);
}

/* Returns the vocabulary as a BPE tokenizer without merges: each token is a character. */
static json_t *tokenizer_json(const gpt_text *text)
{
    json_t *vocabulary = json_object();
    for (int i = 0; i < text->vocabulary; i++) {
        char bytes[5] = "";
        bytes[write_character(text->characters[i], bytes)] = '\0';
        json_object_set_new(vocabulary, bytes, json_integer(i));
    }
    return json_pack("{s:s, s:[], s:n, s:n, s:n, s:{s:s}, s:{s:s, s:n, s:b, s:b, s:o, s:[]}}",
                     "version", "1.0", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "type", "Fuse", "model", "type", "BPE",
                     "unk_token", "fuse_unk", 0, "byte_fallback", 0, "vocab", vocabulary, "merges");
}

bool text_write_tokenizer(const gpt_text *text, const char *model, char *error, size_t error_size)
{
    char path[4096];
    const char *slash = strrchr(model, '/');
    const int folder = slash ? (int)(slash - model) + 1 : 0;
    const failure into = {error, error_size};
    if ((size_t)snprintf(path, sizeof path, "%.*stokenizer.json", folder, model) >= sizeof path)
        return fail(&into, "%s: the path is too long", model);
    json_t *root = tokenizer_json(text);
    const int status = root ? json_dump_file(root, path, JSON_COMPACT) : -1;
    json_decref(root);
    return status == 0 ? true
                       : fail(&into, "%s: %s", path, root ? strerror(errno) : "out of memory");
}
