#include "tokenizer/vocabulary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "json/text_check.h"

tsr_status tsr__strings_add(tsr__strings *strings, const void *text, size_t size, uint64_t *start)
{
    void *data = strings->data;
    TSR__TRY(tsr__grow(&data, &strings->capacity, strings->size + size + 1, 1));
    strings->data = data;
    if (size > 0)
        memcpy(strings->data + strings->size, text, size);
    strings->data[strings->size + size] = '\0';
    *start = strings->size;
    strings->size += size + 1;
    return TSR_OK;
}

void tsr__vocabulary_finish(tsr__vocabulary *vocabulary)
{
    tsr__free(vocabulary->tokens);
    tsr__free(vocabulary->strings.data);
    tsr__free(vocabulary->table);
    *vocabulary = (tsr__vocabulary){0};
}

char *tsr__spelling_text(const char *spelling, size_t size, char text[TSR__SPELLING_TEXT])
{
    bool is_utf8 = tsr__text_problem(spelling, size) == NULL;
    size_t kept = size < TSR__SPELLING_TEXT - 8 ? size : TSR__SPELLING_TEXT - 8, length = 0;
    while (kept < size && kept > 0 && ((unsigned char)spelling[kept] & 0xc0) == 0x80 && is_utf8)
        kept--;
    text[length++] = '\'';
    for (size_t i = 0; i < kept; i++) {
        unsigned char byte = (unsigned char)spelling[i];
        bool shown = byte >= 0x80 ? is_utf8 : byte >= 0x20 && byte != 0x7f;
        text[length++] = shown ? (char)byte : '?';
    }
    snprintf(text + length, TSR__SPELLING_TEXT - length, "'%s", kept < size ? "…" : "");
    return text;
}

tsr_status tsr__vocabulary_add(tsr__vocabulary *vocabulary, uint64_t id, const char *text,
                               size_t size, tsr__token_type type)
{
    char first[TSR__SPELLING_TEXT], second[TSR__SPELLING_TEXT];
    TSR__REQUIRE(id < TSR_TOKENIZER_MAX_SIZE,
                 "tokenizer: token %s has id %" PRIu64 "; ids go up to %d",
                 tsr__spelling_text(text, size, first), id, TSR_TOKENIZER_MAX_SIZE - 1);
    TSR__REQUIRE(size <= TSR_TOKENIZER_MAX_TOKEN_BYTES,
                 "tokenizer: token %" PRIu64 ", %s, has %zu bytes; %d are allowed", id,
                 tsr__spelling_text(text, size, first), size, TSR_TOKENIZER_MAX_TOKEN_BYTES);
    if (id >= vocabulary->count) {
        void *tokens = vocabulary->tokens;
        TSR__TRY(tsr__grow(&tokens, &vocabulary->capacity, id + 1, sizeof *vocabulary->tokens));
        vocabulary->tokens = tokens;
        memset(vocabulary->tokens + vocabulary->count, 0,
               (id + 1 - vocabulary->count) * sizeof *vocabulary->tokens);
        vocabulary->count = id + 1;
    }
    tsr__token *token = &vocabulary->tokens[id];
    TSR__REQUIRE(token->type == TSR__TOKEN_MISSING,
                 "tokenizer: id %" PRIu64 " is given to two tokens, %s and %s", id,
                 tsr__spelling_text(tsr__token_spelling(vocabulary, (int32_t)id),
                                    token->spelling_size, first),
                 tsr__spelling_text(text, size, second));
    TSR__TRY(tsr__strings_add(&vocabulary->strings, text, size, &token->spelling));
    token->spelling_size = (uint32_t)size;
    token->type = type;
    vocabulary->longest = size > vocabulary->longest ? (uint32_t)size : vocabulary->longest;
    return TSR_OK;
}

/* The hash table ------------------------------------------------------------------------------ */

static uint64_t rotate_left(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void siphash_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

/* SipHash-1-3 of data[size] with a secret key, because an adversary may choose the spellings.
 * Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */
static uint64_t siphash(const uint64_t key[2], const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    size_t done = 0;
    for (; size - done >= 8; done += 8) {
        uint64_t word = tsr__get_u64(bytes + done);
        v[3] ^= word;
        siphash_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (int shift = 0; done < size; done++, shift += 8)
        last |= (uint64_t)bytes[done] << shift;
    v[3] ^= last;
    siphash_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Returns the entry of the hash table for a spelling: the entry that contains it or, if none does,
 * the free entry in which it would be stored. */
static uint32_t *entry_of(const tsr__vocabulary *vocabulary, const char *text, size_t size)
{
    size_t slot = (size_t)siphash(vocabulary->key, text, size) & vocabulary->mask;
    for (;; slot = (slot + 1) & vocabulary->mask) {
        uint32_t entry = vocabulary->table[slot];
        if (entry == 0)
            return &vocabulary->table[slot];
        const tsr__token *token = &vocabulary->tokens[entry - 1];
        if (token->spelling_size == size &&
            memcmp(vocabulary->strings.data + token->spelling, text, size) == 0)
            return &vocabulary->table[slot];
    }
}

tsr_status tsr__vocabulary_index(tsr__vocabulary *vocabulary)
{
    char text[TSR__SPELLING_TEXT];
    size_t size = 16;
    TSR__REQUIRE(vocabulary->count > 0, "tokenizer: the vocabulary is empty");
    while (size < 2 * vocabulary->count)
        size *= 2;
    if (getrandom(vocabulary->key, sizeof vocabulary->key, 0) != (ssize_t)sizeof vocabulary->key)
        return tsr__fail(TSR_ERR_IO, "tokenizer: getrandom failed: %s", strerror(errno));
    vocabulary->table = tsr__calloc(size, sizeof *vocabulary->table);
    if (vocabulary->table == NULL)
        return TSR_ERR_NO_MEMORY;
    vocabulary->mask = size - 1;
    for (size_t id = 0; id < vocabulary->count; id++) {
        const tsr__token *token = &vocabulary->tokens[id];
        TSR__REQUIRE(token->type != TSR__TOKEN_MISSING,
                     "tokenizer: id %zu has no token, although ids go up to %zu", id,
                     vocabulary->count - 1);
        const char *spelling = vocabulary->strings.data + token->spelling;
        uint32_t *entry = entry_of(vocabulary, spelling, token->spelling_size);
        TSR__REQUIRE(*entry == 0, "tokenizer: token %s has two ids, %" PRIu32 " and %zu",
                     tsr__spelling_text(spelling, token->spelling_size, text), *entry - 1, id);
        *entry = (uint32_t)id + 1;
    }
    return TSR_OK;
}

int32_t tsr__vocabulary_find(const tsr__vocabulary *vocabulary, const char *text, size_t size)
{
    return size <= vocabulary->longest ? (int32_t)*entry_of(vocabulary, text, size) - 1 : -1;
}
