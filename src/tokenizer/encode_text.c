/* Encoding: a text is divided at added tokens, normalised, split into words, and merged. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/encode_text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

typedef struct encoder {
    const tsr_tokenizer *tokenizer;
    int32_t *ids;
    size_t count, capacity;
    size_t normal_left; /* the bytes that normalised text may still have */
    tsr__strings normal[2], late[2], word;
    tsr__word_list word_list;
    tsr__merge_work work;
} encoder;

static void free_work(encoder *e)
{
    for (int i = 0; i < 2; i++) {
        tsr__free(e->normal[i].data);
        tsr__free(e->late[i].data);
    }
    tsr__free(e->word.data);
    tsr__word_list_finish(&e->word_list);
    tsr__merge_work_finish(&e->work);
}

static tsr_status append_id(encoder *e, int32_t id)
{
    void *ids = e->ids;
    TSR__TRY(tsr__grow(&ids, &e->capacity, e->count + 1, sizeof *e->ids));
    e->ids = ids;
    e->ids[e->count++] = id;
    return TSR_OK;
}

/* Words ---------------------------------------------------------------------------------------- */

static tsr_status no_token(const char *text, size_t size)
{
    char shown[TSR__SPELLING_TEXT];
    if (size == 1)
        return tsr__fail(TSR_ERR_INVALID,
                         "tokenizer: the vocabulary has no token for byte 0x%02x, and no unknown "
                         "token",
                         (unsigned char)text[0]);
    return tsr__fail(TSR_ERR_INVALID,
                     "tokenizer: the vocabulary has no token for %s, and no unknown token",
                     tsr__spelling_text(text, size, shown));
}

/* Appends the unknown token for a character that has no token. If `after_unknown` is true and the
 * tokenizer makes one token of neighbouring unknown characters, appends nothing. */
static tsr_status unknown_symbol(encoder *e, const char *text, size_t offset, size_t size,
                                 bool after_unknown)
{
    const tsr_tokenizer *tokenizer = e->tokenizer;
    if (tokenizer->unknown < 0)
        return no_token(text + offset, size);
    if (!after_unknown || !tokenizer->fuse_unknown)
        return tsr__merge_symbol(&e->work, offset, size, tokenizer->unknown);
    e->work.symbols[e->work.count - 1].size += (uint32_t)size;
    return TSR_OK;
}

/* Appends a symbol for each byte of a character that has no token. Its id is the token of the byte.
 * If the byte has no token, appends the three bytes of U+FFFD instead and, if these have none
 * either, the unknown token. */
static tsr_status byte_symbols(encoder *e, const char *text, size_t size)
{
    static const unsigned char replacement[] = {0xef, 0xbf, 0xbd};
    const int32_t *bytes = e->tokenizer->bytes;
    const bool has_replacement =
        bytes[replacement[0]] >= 0 && bytes[replacement[1]] >= 0 && bytes[replacement[2]] >= 0;
    bool after_unknown = false;
    for (size_t offset = 0; offset < size; offset++) {
        const int32_t id = bytes[(unsigned char)text[offset]];
        const bool is_unknown = id < 0 && !has_replacement;
        if (id >= 0)
            TSR__TRY(tsr__merge_symbol(&e->work, offset, 1, id));
        else if (is_unknown)
            TSR__TRY(unknown_symbol(e, text, offset, 1, after_unknown));
        else
            for (int i = 0; i < 3; i++)
                TSR__TRY(tsr__merge_symbol(&e->work, offset, 1, bytes[replacement[i]]));
        after_unknown = is_unknown;
    }
    return TSR_OK;
}

/* Returns the size of the character at the start of a text. For SentencePiece-style tokenizers, the
 * first byte alone determines the size, as in llama.cpp, even if the bytes after it are not valid
 * UTF-8. Unlike in llama.cpp, a character ends before "▁", because decoding would otherwise lose
 * the space for which "▁" stands. */
static size_t character_size(const tsr_tokenizer *tokenizer, const char *text, size_t size)
{
    uint32_t code;
    unsigned char byte = (unsigned char)text[0];
    if (tokenizer->kind != TSR_TOKENIZER_SPM)
        return tsr__character(text, size, &code);
    size_t wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1, offset = 1;
    while (offset < wanted && offset < size &&
           !(size - offset >= 3 && memcmp(text + offset, "▁", 3) == 0))
        offset++;
    return offset;
}

static tsr_status character_symbols(encoder *e, const char *text, size_t size)
{
    const tsr_tokenizer *tokenizer = e->tokenizer;
    bool after_unknown = false;
    for (size_t offset = 0, next; offset < size; offset += next) {
        next = character_size(tokenizer, text + offset, size - offset);
        int32_t id = tsr__vocabulary_find(&tokenizer->vocabulary, text + offset, next);
        const uint32_t *ranks = tokenizer->merges.ranks;
        if (id >= 0 && ranks != NULL && ranks[id] == TSR__NEVER)
            id = -1; /* a control token's spelling is ordinary text */
        bool has_bytes = true;
        for (size_t i = 0; i < next && id < 0; i++)
            has_bytes = has_bytes && tokenizer->bytes[(unsigned char)text[offset + i]] >= 0;
        bool by_bytes = id < 0 && has_bytes && tokenizer->kind == TSR_TOKENIZER_BPE;
        bool is_unknown = id < 0 && !by_bytes && tokenizer->kind == TSR_TOKENIZER_BPE;
        if (by_bytes)
            for (size_t i = 0; i < next; i++)
                TSR__TRY(tsr__merge_symbol(&e->work, offset + i, 1,
                                           tokenizer->bytes[(unsigned char)text[offset + i]]));
        else if (is_unknown)
            TSR__TRY(unknown_symbol(e, text, offset, next, after_unknown));
        else
            TSR__TRY(tsr__merge_symbol(&e->work, offset, next, id));
        after_unknown = is_unknown;
    }
    return TSR_OK;
}

/* Appends ids for a symbol that is not a token: the tokens of its bytes or, if one of its bytes has
 * no token, the unknown token. */
static tsr_status append_bytes(encoder *e, const char *text, size_t size, bool *after_unknown)
{
    const tsr_tokenizer *tokenizer = e->tokenizer;
    bool has_bytes = true;
    for (size_t i = 0; i < size; i++)
        has_bytes = has_bytes && tokenizer->bytes[(unsigned char)text[i]] >= 0;
    if (!has_bytes && tokenizer->unknown < 0)
        return no_token(text, size);
    bool fused = !has_bytes && *after_unknown && tokenizer->fuse_unknown;
    for (size_t i = 0; i < size && has_bytes; i++)
        TSR__TRY(append_id(e, tokenizer->bytes[(unsigned char)text[i]]));
    if (!has_bytes && !fused)
        TSR__TRY(append_id(e, tokenizer->unknown));
    *after_unknown = !has_bytes;
    return TSR_OK;
}

/* Sets *id to the ordinary token that is the whole word, or to -1. */
static tsr_status find_word(encoder *e, const char *text, size_t size, int32_t *id)
{
    const tsr__vocabulary *vocabulary = &e->tokenizer->vocabulary;
    *id = -1;
    if (e->tokenizer->kind != TSR_TOKENIZER_BYTE_BPE) {
        *id = tsr__vocabulary_find(vocabulary, text, size);
    } else if (size <= vocabulary->longest) {
        e->word.size = 0;
        for (size_t i = 0; i < size; i++) {
            char letter[2];
            TSR__TRY(tsr__append(&e->word, letter,
                                 tsr__alphabet_encode((unsigned char)text[i], letter)));
        }
        *id = tsr__vocabulary_find(vocabulary, e->word.data, e->word.size);
    }
    if (*id >= 0 && vocabulary->tokens[*id].type != TSR__TOKEN_NORMAL)
        *id = -1;
    return TSR_OK;
}

static tsr_status encode_word(encoder *e, const char *text, size_t size)
{
    const tsr_tokenizer *tokenizer = e->tokenizer;
    int32_t whole = -1;
    bool after_unknown = false;
    if (tokenizer->whole_words)
        TSR__TRY(find_word(e, text, size, &whole));
    if (whole >= 0)
        return append_id(e, whole);
    e->work.count = 0;
    if (tokenizer->kind == TSR_TOKENIZER_BYTE_BPE)
        TSR__TRY(byte_symbols(e, text, size));
    else
        TSR__TRY(character_symbols(e, text, size));
    TSR__TRY(tsr__merge(&tokenizer->merges, &tokenizer->vocabulary, text, &e->work));
    for (size_t i = 0; i < e->work.count; i++) {
        tsr__symbol symbol = e->work.symbols[i];
        if (symbol.size == 0)
            continue;
        if (symbol.id < 0) {
            TSR__TRY(append_bytes(e, text + symbol.start, symbol.size, &after_unknown));
        } else {
            TSR__TRY(append_id(e, symbol.id));
            after_unknown = false;
        }
    }
    return TSR_OK;
}

/* Texts ---------------------------------------------------------------------------------------- */

/* Encodes normalised text between added tokens. */
static tsr_status encode_plain(encoder *e, const char *text, size_t size, bool first)
{
    const tsr_tokenizer *tokenizer = e->tokenizer;
    if (tokenizer->late.count > 0) {
        TSR__TRY(
            tsr__normalize(&tokenizer->late, text, size, first, NULL, &e->late[0], &e->late[1]));
        text = e->late[0].data;
        size = e->late[0].size;
    }
    TSR__TRY(tsr__split_words(&tokenizer->words, text, size, &e->word_list));
    size_t start = 0;
    for (size_t i = 0; i < e->word_list.count; start = e->word_list.ends[i++])
        TSR__TRY(encode_word(e, text + start, e->word_list.ends[i] - start));
    return TSR_OK;
}

/* Divides the text at the tokens of added[stage], and encodes the ranges between the tokens. Stage
 * 0 normalises each range and passes it to stage 1. Normalisation changes offsets, so stage 1
 * recognises control tokens only in a range that was inside `control` as a whole. */
static tsr_status encode_stage(encoder *e, int stage, const tsr__text_ranges *control,
                               const char *text, size_t size, bool first)
{
    static const tsr__text_ranges nowhere = {0};
    const tsr_tokenizer *tokenizer = e->tokenizer;
    size_t offset = 0;
    while (offset < size) {
        tsr__found found = {.start = size, .end = size, .id = -1};
        bool more =
            tsr__added_search(&tokenizer->added[stage], control, text, size, offset, &found);
        const char *range = text + offset;
        size_t range_size = found.start - offset;
        bool range_first = first && offset == 0;
        if (range_size > 0 && stage == 0) {
            if (tokenizer->normalizer.count > 0) {
                TSR__TRY(tsr__normalize(&tokenizer->normalizer, range, range_size, range_first,
                                        &e->normal_left, &e->normal[0], &e->normal[1]));
                range = e->normal[0].data;
                range_size = e->normal[0].size;
            }
            const bool whole_range = tsr__text_ranges_contain(control, offset, found.start);
            TSR__TRY(encode_stage(e, 1, whole_range ? &tsr__everywhere : &nowhere, range,
                                  range_size, range_first));
        } else if (range_size > 0) {
            TSR__TRY(encode_plain(e, range, range_size, range_first));
        }
        if (more)
            TSR__TRY(append_id(e, found.id));
        offset = found.end;
    }
    return TSR_OK;
}

static tsr_status encode(encoder *e, const char *text, size_t size, const tsr__encode_how *how)
{
    const tsr_tokenizer *tokenizer = e->tokenizer;
    for (size_t i = 0; i < tokenizer->before && how->adds_before; i++)
        TSR__TRY(append_id(e, tokenizer->around[i]));
    TSR__TRY(encode_stage(e, 0, &how->control, text, size, how->starts));
    for (size_t i = 0; i < tokenizer->after && how->adds_after; i++)
        TSR__TRY(append_id(e, tokenizer->around[tokenizer->before + i]));
    if (e->ids == NULL) { /* the caller gets an array even if the text has no ids */
        e->ids = tsr__calloc(1, sizeof *e->ids);
        return e->ids != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

tsr_status tsr__tokenizer_encode_with(const tsr_tokenizer *tokenizer, const char *text, size_t size,
                                      const tsr__encode_how *how, int32_t **ids, uint64_t *count)
{
    TSR__REQUIRE(size <= TSR_TOKENIZER_MAX_TEXT,
                 "tokenizer: a text of %zu bytes is longer than the %d allowed", size,
                 TSR_TOKENIZER_MAX_TEXT);
    encoder e = {.tokenizer = tokenizer, .normal_left = tsr__normal_limit(size)};
    const tsr_status status = encode(&e, text, size, how);
    free_work(&e);
    if (status != TSR_OK) {
        tsr__free(e.ids);
        return status;
    }
    *ids = e.ids;
    *count = e.count;
    return TSR_OK;
}

/* Sets *same to whether merging the bytes of an ordinary token gives the token. */
static tsr_status merges_to(encoder *e, size_t id, bool *same)
{
    const tsr__vocabulary *v = &e->tokenizer->vocabulary;
    const char *bytes = v->strings.data + v->tokens[id].bytes;
    e->work.count = 0;
    TSR__TRY(byte_symbols(e, bytes, v->tokens[id].bytes_size));
    TSR__TRY(tsr__merge(&e->tokenizer->merges, v, bytes, &e->work));
    *same = e->work.count > 0 && e->work.symbols[0].id == (int32_t)id;
    return TSR_OK;
}

tsr_status tsr__tokenizer_merges_all(const tsr_tokenizer *tokenizer, bool *out)
{
    encoder e = {.tokenizer = tokenizer};
    tsr_status status = TSR_OK;
    *out = true;
    for (size_t id = 0; id < tokenizer->vocabulary.count && *out && status == TSR_OK; id++)
        if (tokenizer->vocabulary.tokens[id].type == TSR__TOKEN_NORMAL)
            status = merges_to(&e, id, out);
    free_work(&e);
    return status;
}

tsr_status tsr_tokenizer_encode(const tsr_tokenizer *tokenizer, const void *text, size_t size_bytes,
                                const tsr_encode_params *params, int32_t **ids, uint64_t *count)
{
    TSR__REQUIRE(tokenizer != NULL && ids != NULL && count != NULL, "tokenizer: %s is NULL",
                 tokenizer == NULL ? "the tokenizer"
                 : ids == NULL     ? "ids"
                                   : "count");
    TSR__REQUIRE(text != NULL || size_bytes == 0, "tokenizer: text is NULL, but has %zu bytes",
                 size_bytes);
    TSR__TAKE(tsr_encode_params, params);
    TSR__REQUIRE(params->add == TSR_ENCODE_ADD_DEFAULT || params->add == TSR_ENCODE_ADD_NONE,
                 "tokenizer: add is %d", (int)params->add);
    TSR__REQUIRE(params->control == TSR_ENCODE_CONTROL_TEXT ||
                     params->control == TSR_ENCODE_CONTROL_TOKEN,
                 "tokenizer: control is %d", (int)params->control);
    tsr__encode_how how = {.starts = true};
    how.adds_before = how.adds_after = params->add == TSR_ENCODE_ADD_DEFAULT;
    if (params->control == TSR_ENCODE_CONTROL_TOKEN)
        how.control = tsr__everywhere;
    return tsr__tokenizer_encode_with(tokenizer, size_bytes > 0 ? text : "", size_bytes, &how, ids,
                                      count);
}

void tsr_tokenizer_free_ids(int32_t **ids)
{
    if (ids == NULL)
        return;
    tsr__free(*ids);
    *ids = NULL;
}
