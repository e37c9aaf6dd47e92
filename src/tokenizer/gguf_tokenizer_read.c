/* Tokenizers in GGUF files: the arrays tokenizer.ggml.tokens, token_type, scores and merges, and
 * single values. Source: the format's specification, github.com/ggml-org/ggml, docs/gguf.md. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "shard/formats/gguf_metadata.h"
#include "tokenizer/phi3_added_tokens.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/word_expressions.h"

enum {
    MODEL,
    PRE,
    TOKENS,
    TYPES,
    SCORES,
    MERGES,
    BOS,
    EOS,
    PAD,
    UNKNOWN,
    EOT,
    EOM,
    ADD_BOS,
    ADD_EOS,
    ADD_SPACE,
    CHAT,
    PART,
    NAME,
    VALUES
};

static const char *const names[VALUES] = {
    [MODEL] = "tokenizer.ggml.model",
    [PRE] = "tokenizer.ggml.pre",
    [TOKENS] = "tokenizer.ggml.tokens",
    [TYPES] = "tokenizer.ggml.token_type",
    [SCORES] = "tokenizer.ggml.scores",
    [MERGES] = "tokenizer.ggml.merges",
    [BOS] = "tokenizer.ggml.bos_token_id",
    [EOS] = "tokenizer.ggml.eos_token_id",
    [PAD] = "tokenizer.ggml.padding_token_id",
    [UNKNOWN] = "tokenizer.ggml.unknown_token_id",
    [EOT] = "tokenizer.ggml.eot_token_id",
    [EOM] = "tokenizer.ggml.eom_token_id",
    [ADD_BOS] = "tokenizer.ggml.add_bos_token",
    [ADD_EOS] = "tokenizer.ggml.add_eos_token",
    [ADD_SPACE] = "tokenizer.ggml.add_space_prefix",
    [CHAT] = "tokenizer.chat_template",
    [PART] = "split.no",
    [NAME] = "general.name",
};

/* The most bytes of a merge, which is written as "left right". Both sides are tokens. */
#define MAX_MERGE (2 * TSR_TOKENIZER_MAX_TOKEN_BYTES + 1)

typedef struct reader {
    tsr__file *file;
    const tsr__gguf_keys *keys; /* of the file; NULL: they have not been read */
    tsr_tokenizer *tokenizer;
    tsr__gguf_value values[VALUES];
    float *scores;
    char text[MAX_MERGE + 1];
} reader;

/* Checks that an array exists, has the given type, and, except for the merges, has an element for
 * each token. */
static tsr_status check_array(reader *r, int value, uint32_t type, const char *wanted)
{
    const tsr__gguf_value *array = &r->values[value], *tokens = &r->values[TOKENS];
    if (!array->found)
        return tsr__fail(TSR_ERR_INVALID, "gguf: the file has no key '%s'", array->key);
    TSR__TRY(tsr__gguf_check_array(r->file, array, type, wanted));
    if (value != MERGES && array->count != tokens->count)
        return tsr__fail(TSR_ERR_INVALID,
                         "gguf: '%s' has %" PRIu64 " elements, and '%s' has %" PRIu64, array->key,
                         array->count, tokens->key, tokens->count);
    return TSR_OK;
}

/* Returns whether a token with this spelling controls the model. Old files give some of these
 * tokens as ordinary or user-defined. */
static bool is_control_spelling(const char *text, size_t size)
{
    static const char *const spellings[] = {
        "<|fim_prefix|>", "<fim-prefix>",   "<｜fim▁begin｜>", "<|fim_suffix|>", "<fim-suffix>",
        "<｜fim▁hole｜>", "<|fim_middle|>", "<fim-middle>",    "<｜fim▁end｜>",  "<|fim_pad|>",
        "<fim-pad>",      "<|fim_repo|>",   "<|repo_name|>",   "<fim-repo>",     "<|file_sep|>"};
    if (tsr__is_end_spelling(text, size))
        return true;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strlen(spellings[i]) == size && memcmp(spellings[i], text, size) == 0)
            return true;
    return false;
}

static tsr_status read_type(reader *r, uint64_t i, const char *text, size_t size,
                            tsr__token_type *type)
{
    uint8_t bytes[4];
    *type = TSR__TOKEN_NORMAL;
    if (r->values[TYPES].found) {
        uint64_t offset = r->values[TYPES].at + 4 * i;
        TSR__TRY(tsr__file_read(r->file, offset, 4, "a token's type", bytes));
        uint32_t read = (uint32_t)tsr__little_endian(bytes, 4);
        if (read < TSR__TOKEN_NORMAL || read > TSR__TOKEN_BYTE)
            return tsr__file_fail(r->file, TSR_ERR_INVALID, offset,
                                  "token %" PRIu64 " has type %" PRId32 "; types are 1 to 6", i,
                                  tsr__as_i32(read));
        *type = (tsr__token_type)read;
    }
    if (*type == TSR__TOKEN_BYTE && tsr__byte_spelling(text, size) < 0)
        return tsr__file_fail(r->file, TSR_ERR_INVALID, r->values[TOKENS].at,
                              "token %" PRIu64 " is of type byte, but is not spelled <0x00> to "
                              "<0xFF>",
                              i);
    if (is_control_spelling(text, size))
        *type = TSR__TOKEN_CONTROL;
    return TSR_OK;
}

/* Sets *out to the string of a key, of any length, and *size to its bytes; to NULL if the file does
 * not have the key, or its value is not a string. The caller frees *out. */
static tsr_status load_string(reader *r, int key, char **out, uint64_t *size)
{
    const tsr__gguf_value *value = &r->values[key];
    uint8_t bytes[8];
    *out = NULL;
    if (!value->found || value->is_array || value->type != TSR__GGUF_STRING)
        return TSR_OK;
    TSR__TRY(tsr__file_read(r->file, value->at, 8, names[key], bytes));
    *size = tsr__little_endian(bytes, 8);
    return tsr__file_load(r->file, value->at + 8, *size, names[key], out);
}

/* Sets *out to whether the model's name is one of Phi-3. */
static tsr_status read_phi3(reader *r, bool *out)
{
    char *name;
    uint64_t size;
    TSR__TRY(load_string(r, NAME, &name, &size));
    *out = name != NULL && tsr__is_phi3(name, (size_t)size);
    tsr__free(name);
    return TSR_OK;
}

static tsr_status read_tokens(reader *r)
{
    bool is_phi3;
    TSR__TRY(read_phi3(r, &is_phi3));
    tsr__gguf gguf = {.file = r->file, .at = r->values[TOKENS].at};
    for (uint64_t i = 0; i < r->values[TOKENS].count; i++) {
        size_t size = 0;
        tsr__token_type type;
        TSR__TRY(
            tsr__gguf_string(&gguf, "a token", TSR_TOKENIZER_MAX_TOKEN_BYTES + 1, r->text, &size));
        TSR__TRY(read_type(r, i, r->text, size, &type));
        TSR__TRY(tsr__vocabulary_add(&r->tokenizer->vocabulary, i, r->text, size, type));
        bool is_control = type == TSR__TOKEN_CONTROL || type == TSR__TOKEN_UNKNOWN;
        const tsr__added_token added = {.id = (int32_t)i,
                                        .control = is_control,
                                        .strip_right = is_phi3 && tsr__phi3_strips(r->text, size)};
        if (is_control || type == TSR__TOKEN_USER)
            TSR__TRY(tsr__added_add(&r->tokenizer->added[0], r->text, size, &added));
        r->tokenizer->vocabulary.tokens[i].ends =
            type == TSR__TOKEN_CONTROL && tsr__is_end_spelling(r->text, size);
    }
    return tsr__vocabulary_index(&r->tokenizer->vocabulary);
}

/* Reads an id. Leaves *id unchanged if the file does not have it. */
static tsr_status read_id(reader *r, int value, int32_t *id)
{
    int64_t read = 0;
    if (!r->values[value].found)
        return TSR_OK;
    TSR__TRY(tsr__gguf_integer(r->file, &r->values[value], &read));
    /* Some writers use -1 or 2^32 - 1 for "none". */
    if (read == -1 || read == UINT32_MAX)
        read = -1;
    else if (read < 0 || (uint64_t)read >= r->tokenizer->vocabulary.count)
        return tsr__file_fail(r->file, TSR_ERR_INVALID, r->values[value].at,
                              "'%s' is %" PRId64 "; ids are 0 to %zu", names[value], read,
                              r->tokenizer->vocabulary.count - 1);
    *id = (int32_t)read;
    return TSR_OK;
}

static tsr_status read_bool(reader *r, int value, bool *out)
{
    return r->values[value].found ? tsr__gguf_bool(r->file, &r->values[value], out) : TSR_OK;
}

/* Reads the ids of special tokens, and whether BOS and EOS are added around a text. */
static tsr_status read_ids(reader *r, bool adds_bos)
{
    tsr_tokenizer *tokenizer = r->tokenizer;
    bool adds_eos = false;
    int32_t ends[2] = {-1, -1};
    TSR__TRY(read_id(r, BOS, &tokenizer->bos));
    TSR__TRY(read_id(r, EOS, &tokenizer->eos));
    TSR__TRY(read_id(r, PAD, &tokenizer->pad));
    TSR__TRY(read_id(r, UNKNOWN, &tokenizer->unknown));
    TSR__TRY(read_id(r, EOT, &ends[0]));
    TSR__TRY(read_id(r, EOM, &ends[1]));
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            tokenizer->vocabulary.tokens[ends[i]].ends = true;
    TSR__TRY(read_bool(r, ADD_BOS, &adds_bos));
    TSR__TRY(read_bool(r, ADD_EOS, &adds_eos));
    if (adds_bos && tokenizer->bos >= 0)
        TSR__TRY(tsr__tokenizer_add_around(tokenizer, tokenizer->bos, false));
    if (adds_eos && tokenizer->eos >= 0)
        TSR__TRY(tsr__tokenizer_add_around(tokenizer, tokenizer->eos, true));
    return TSR_OK;
}

static tsr_status read_scores(reader *r)
{
    uint64_t count = r->values[SCORES].count;
    r->scores = tsr__calloc(count, sizeof *r->scores);
    if (r->scores == NULL)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        TSR__TRY(tsr__file_read(r->file, r->values[SCORES].at + 4 * i, 4, "a score", bytes));
        uint32_t bits = (uint32_t)tsr__little_endian(bytes, 4);
        memcpy(&r->scores[i], &bits, sizeof bits);
    }
    return TSR_OK;
}

static tsr_status read_spm(reader *r)
{
    tsr_tokenizer *tokenizer = r->tokenizer;
    size_t count = tokenizer->vocabulary.count;
    bool adds_space = true;
    TSR__TRY(check_array(r, SCORES, TSR__GGUF_F32, "an array of f32"));
    TSR__TRY(read_scores(r));
    /* the default ids of SentencePiece */
    tokenizer->unknown = 0;
    tokenizer->bos = count > 1 ? 1 : -1;
    tokenizer->eos = count > 2 ? 2 : -1;
    TSR__TRY(read_ids(r, true));
    TSR__TRY(read_bool(r, ADD_SPACE, &adds_space));
    return tsr__tokenizer_make_spm(tokenizer, r->scores, adds_space);
}

static tsr_status read_merges(reader *r)
{
    tsr_tokenizer *tokenizer = r->tokenizer;
    TSR__TRY(check_array(r, MERGES, TSR__GGUF_STRING, "an array of strings"));
    tsr__gguf gguf = {.file = r->file, .at = r->values[MERGES].at};
    for (uint64_t i = 0; i < r->values[MERGES].count; i++) {
        size_t size = 0;
        TSR__TRY(tsr__gguf_string(&gguf, "a merge", sizeof r->text, r->text, &size));
        const char *space = size > 0 ? memchr(r->text + 1, ' ', size - 1) : NULL;
        size_t left = space != NULL ? (size_t)(space - r->text) : size;
        TSR__TRY(tsr__merges_add_spelled(&tokenizer->merges, &tokenizer->vocabulary, i, r->text,
                                         left, r->text + left + 1,
                                         space != NULL ? size - left - 1 : 0));
    }
    return tsr__merges_sort(&tokenizer->merges, tokenizer->vocabulary.count, false);
}

static tsr_status read_bpe(reader *r)
{
    char name[TSR_SHARD_MAX_NAME + 1] = "default";
    bool adds_bos = false;
    r->tokenizer->kind = TSR_TOKENIZER_BYTE_BPE;
    if (r->values[PRE].found)
        TSR__TRY(tsr__gguf_name_of(r->file, &r->values[PRE], name));
    TSR__TRY(tsr__word_splitter_by_name(name, &r->tokenizer->words, &r->tokenizer->whole_words,
                                        &adds_bos));
    TSR__TRY(read_ids(r, adds_bos));
    return read_merges(r);
}

/* Gemma 4's: merges of characters as in its tokenizer.json, with the bytes of characters that are
 * not tokens, and "▁" for spaces. llama.cpp also takes line breaks in a row as one token if there
 * is such a token, which merging gives, too, and adds BOS whatever the file says. */
static tsr_status read_gemma4(reader *r)
{
    static const char space[] = "▁";
    tsr_tokenizer *tokenizer = r->tokenizer;
    bool adds_space = false;
    TSR__TRY(read_bool(r, ADD_SPACE, &adds_space));
    if (adds_space)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "gguf: '%s' is true, which is not supported for "
                         "tokenizers of the model 'gemma4'",
                         names[ADD_SPACE]);
    tokenizer->kind = TSR_TOKENIZER_BPE;
    tokenizer->spells_spaces = tokenizer->fuse_unknown = true;
    TSR__TRY(
        tsr__normalizer_add(&tokenizer->normalizer, TSR__REPLACE, " ", 1, space, strlen(space)));
    r->values[ADD_BOS].found = false;
    TSR__TRY(read_ids(r, true));
    return read_merges(r);
}

/* Reads the chat template. Leaves out one that is not a string or contains a zero byte, because
 * only chats need it. */
static tsr_status read_chat(reader *r)
{
    char *text;
    uint64_t size;
    TSR__TRY(load_string(r, CHAT, &text, &size));
    if (text != NULL && memchr(text, '\0', (size_t)size) == NULL)
        r->tokenizer->chat_template = text;
    else
        tsr__free(text);
    return TSR_OK;
}

static tsr_status read_tokenizer(reader *r)
{
    char model[TSR_SHARD_MAX_NAME + 1];
    for (int v = 0; v < VALUES; v++)
        r->values[v].key = names[v];
    TSR__TRY(r->keys != NULL ? tsr__gguf_look_up(r->file, r->keys, r->values, VALUES)
                             : tsr__gguf_find(r->file, r->values, VALUES));
    if (!r->values[MODEL].found)
        return tsr__fail(
            TSR_ERR_NOT_FOUND, "gguf: the file has no tokenizer: no key '%s'%s", names[MODEL],
            r->values[PART].found ? "; of a model in several files, the first one has it" : "");
    TSR__TRY(tsr__gguf_name_of(r->file, &r->values[MODEL], model));
    if (strcmp(model, "none") == 0 || strcmp(model, "no_vocab") == 0)
        return tsr__fail(TSR_ERR_NOT_FOUND, "gguf: the file has no tokenizer: '%s' is '%s'",
                         names[MODEL], model);
    const bool is_spm = strcmp(model, "llama") == 0, is_gemma4 = strcmp(model, "gemma4") == 0;
    if (!is_spm && !is_gemma4 && strcmp(model, "gpt2") != 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "gguf: tokenizers of the model '%.80s' are not supported; only llama, "
                         "gpt2 and gemma4 are",
                         model);
    TSR__TRY(check_array(r, TOKENS, TSR__GGUF_STRING, "an array of strings"));
    if (r->values[TYPES].found)
        TSR__TRY(check_array(r, TYPES, TSR__GGUF_I32, "an array of i32"));
    TSR__TRY(read_tokens(r));
    TSR__TRY(is_spm ? read_spm(r) : is_gemma4 ? read_gemma4(r) : read_bpe(r));
    TSR__TRY(read_chat(r));
    return tsr__tokenizer_complete(r->tokenizer);
}

tsr_status tsr__tokenizer_read_gguf_by_keys(tsr__file *file, const tsr__gguf_keys *keys,
                                            tsr_tokenizer *tokenizer)
{
    reader *r = tsr__calloc(1, sizeof *r);
    if (r == NULL)
        return TSR_ERR_NO_MEMORY;
    r->file = file;
    r->keys = keys;
    r->tokenizer = tokenizer;
    tsr_status status = read_tokenizer(r);
    tsr__free(r->scores);
    tsr__free(r);
    return status;
}

tsr_status tsr__tokenizer_read_gguf(tsr__file *file, tsr_tokenizer *tokenizer)
{
    return tsr__tokenizer_read_gguf_by_keys(file, NULL, tokenizer);
}
