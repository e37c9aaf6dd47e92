#include "shard/formats/file_kind.h"

#include <string.h>

#include "base/checked.h"

/* The most bytes of a token in a vocabulary of llama2.c, for recognising the file. */
#define MAX_TOKEN_BYTES 65536

static bool is_json(const uint8_t *start, uint64_t size)
{
    uint64_t at = 0;
    while (at < size && start[at] != '\0' && strchr(" \n\r\t", start[at]) != NULL)
        at++;
    return at < size && (start[at] == '{' || start[at] == '[');
}

/* A safetensors file begins with the size of its header in 8 bytes. The header is a JSON object. */
static bool is_safetensors(const uint8_t *start, uint64_t size)
{
    return size > 8 && tsr__little_endian(start, 8) <= TSR__MAX_HEADER && start[8] == '{';
}

/* A tokenizer.model begins with the mark of a piece's field, 0x0a, the size of the piece, and the
 * mark of one of the piece's three fields: its text, its score or its type. */
static bool is_sentencepiece(const uint8_t *start, uint64_t size)
{
    uint64_t at = 1;
    if (size < 4 || start[0] != 0x0a || start[1] == 0)
        return false;
    while (at < size && (start[at] & 0x80) != 0)
        at++;
    at++;
    return at < size && (start[at] == 0x0a || start[at] == 0x15 || start[at] == 0x18);
}

/* A vocabulary of llama2.c begins with the size of its longest token, and the score and the size of
 * its first token. */
static bool is_llama2c(const uint8_t *start, uint64_t size, uint64_t file_bytes)
{
    if (size < 12)
        return false;
    const uint64_t longest = tsr__little_endian(start, 4), first = tsr__little_endian(start + 8, 4);
    return longest >= 1 && longest <= MAX_TOKEN_BYTES && first <= longest &&
           12 + first <= file_bytes;
}

tsr__file_kind tsr__file_kind_of(const uint8_t *start, uint64_t size, uint64_t file_bytes)
{
    if (size >= 4 && memcmp(start, "GGUF", 4) == 0)
        return TSR__FILE_GGUF;
    if (is_safetensors(start, size))
        return TSR__FILE_SAFETENSORS;
    if (is_json(start, size))
        return TSR__FILE_JSON;
    if (is_sentencepiece(start, size))
        return TSR__FILE_SENTENCEPIECE;
    return is_llama2c(start, size, file_bytes) ? TSR__FILE_LLAMA2C : TSR__FILE_UNKNOWN;
}

tsr_status tsr__file_kind_read(tsr__file *file, tsr__file_kind *out)
{
    uint8_t start[TSR__FILE_KIND_BYTES];
    uint64_t size = tsr__min_u64(file->size, sizeof start);
    if (file->data != NULL)
        size = tsr__min_u64(size, file->data_size);
    TSR__TRY(tsr__file_read(file, 0, size, "the start", start));
    *out = tsr__file_kind_of(start, size, file->size);
    return TSR_OK;
}

const char *tsr__file_kind_name(tsr__file_kind kind)
{
    static const char *const names[] = {
        [TSR__FILE_UNKNOWN] = "a file of no known format",
        [TSR__FILE_GGUF] = "a GGUF file",
        [TSR__FILE_SAFETENSORS] = "a safetensors file",
        [TSR__FILE_JSON] = "a JSON file",
        [TSR__FILE_SENTENCEPIECE] = "a tokenizer.model of SentencePiece",
        [TSR__FILE_LLAMA2C] = "a vocabulary of llama2.c",
    };
    return names[kind];
}

tsr_status tsr__file_kind_expect(tsr__file *file, tsr__file_kind kind)
{
    tsr__file_kind found;
    TSR__TRY(tsr__file_kind_read(file, &found));
    if (found == kind || found == TSR__FILE_UNKNOWN)
        return TSR_OK;
    return tsr__file_fail(file, TSR_ERR_INVALID, 0, "this is %s, not %s",
                          tsr__file_kind_name(found), tsr__file_kind_name(kind));
}
