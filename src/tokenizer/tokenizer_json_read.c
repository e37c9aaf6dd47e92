/* tokenizer.json of Hugging Face: the model (vocabulary and merges) and the added tokens. Source:
 * the files themselves, and the documentation of github.com/huggingface/tokenizers. */
#include "tokenizer/tokenizer_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_read.h"

/* The model ------------------------------------------------------------------------------------ */

enum {
    VOCAB,
    MERGES,
    UNKNOWN,
    BYTE_FALLBACK,
    FUSE_UNKNOWN,
    IGNORE_MERGES,
    DROPOUT,
    PREFIX,
    SUFFIX
};
static const char *const model_members[] = {"vocab",
                                            "merges",
                                            "unk_token",
                                            "byte_fallback",
                                            "fuse_unk",
                                            "ignore_merges",
                                            "dropout",
                                            "continuing_subword_prefix",
                                            "end_of_word_suffix",
                                            NULL};
#define MODEL_MEMBERS (sizeof model_members / sizeof *model_members - 1)

typedef struct reader {
    tsr__json json;
    tsr_tokenizer *tokenizer;
    bool byte_fallback;
    size_t normal_left; /* the bytes that added tokens may still have after normalising */
    char key[TSR__JSON_TEXT], other[TSR__JSON_TEXT];
} reader;

/* Sets places[i] to the offset of the value of the object's member names[i]. Leaves places[i] at 0
 * if this member is missing or null. */
static tsr_status find_members(reader *r, const char *const *names, size_t *places)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(&r->json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(&r->json, r->key, &more));
        if (!more)
            return TSR_OK;
        int found = tsr__json_find(names, r->key);
        if (found >= 0 && places[found] > 0)
            return tsr__json_fail(&r->json, r->json.key_at, "\"%s\" comes twice", names[found]);
        if (found >= 0 && tsr__json_peek(&r->json) != 'n')
            places[found] = r->json.at;
        TSR__TRY(tsr__json_skip(&r->json));
    }
}

/* Limits an id by the size of the file, so that a small file cannot make the library allocate much
 * memory. Each token takes at least 5 bytes of the file. */
static tsr_status check_id(const reader *r, size_t offset, uint64_t id)
{
    if (id > r->json.size / 5)
        return tsr__json_fail(&r->json, offset,
                              "id %" PRIu64 " is too large: a file of %zu bytes has fewer tokens",
                              id, r->json.size);
    return TSR_OK;
}

static tsr_status read_vocabulary(reader *r)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(&r->json, '{'));
    for (;;) {
        uint64_t id = 0;
        TSR__TRY(tsr__json_member(&r->json, r->key, &more));
        if (!more)
            return TSR_OK;
        size_t offset = r->json.at, size = strlen(r->key);
        TSR__TRY(tsr__json_integer(&r->json, &id));
        TSR__TRY(check_id(r, offset, id));
        bool is_byte = r->byte_fallback && tsr__byte_spelling(r->key, size) >= 0;
        TSR__TRY(tsr__vocabulary_add(&r->tokenizer->vocabulary, id, r->key, size,
                                     is_byte ? TSR__TOKEN_BYTE : TSR__TOKEN_NORMAL));
    }
}

/* Reads a merge: "left right" or ["left", "right"]. */
static tsr_status read_merge(reader *r, uint64_t number)
{
    tsr__json *json = &r->json;
    bool more = false;
    const char *right = r->other;
    size_t left;
    if (tsr__json_peek(json) == '[') {
        TSR__TRY(tsr__json_enter(json, '['));
        size_t start = json->at;
        char *texts[] = {r->key, r->other};
        for (int i = 0; i < 2; i++) {
            TSR__TRY(tsr__json_element(json, &more));
            if (!more)
                return tsr__json_fail(json, start, "a merge of %d tokens, not 2", i);
            TSR__TRY(tsr__json_string(json, TSR__JSON_TEXT, texts[i]));
        }
        TSR__TRY(tsr__json_element(json, &more));
        if (more)
            return tsr__json_fail(json, start, "a merge of more than 2 tokens");
        left = strlen(r->key);
    } else {
        size_t start = json->at;
        TSR__TRY(tsr__json_string(json, TSR__JSON_TEXT, r->key));
        const char *space = r->key[0] != '\0' ? strchr(r->key + 1, ' ') : NULL;
        if (space == NULL)
            return tsr__json_fail(json, start, "a merge without a space between its tokens");
        left = (size_t)(space - r->key);
        right = space + 1;
    }
    return tsr__merges_add_spelled(&r->tokenizer->merges, &r->tokenizer->vocabulary, number, r->key,
                                   left, right, strlen(right));
}

static tsr_status read_merges(reader *r)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (uint64_t i = 0;; i++) {
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return tsr__merges_sort(&r->tokenizer->merges, r->tokenizer->vocabulary.count, true);
        TSR__TRY(read_merge(r, i));
    }
}

static tsr_status read_flag(reader *r, size_t place, bool *out)
{
    r->json.at = place;
    return place > 0 ? tsr__json_bool(&r->json, out) : TSR_OK;
}

/* Refuses a feature that would change the ids and is not implemented, unless it is missing or an
 * empty string. */
static tsr_status refuse(reader *r, size_t place, const char *name)
{
    r->json.at = place;
    if (place == 0)
        return TSR_OK;
    if (tsr__json_peek(&r->json) == '"') {
        TSR__TRY(tsr__json_string(&r->json, TSR__JSON_TEXT, r->key));
        if (r->key[0] == '\0')
            return TSR_OK;
    }
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "tokenizer: offset %zu: a model with \"%s\" is not "
                     "supported",
                     place, name);
}

static tsr_status read_model_head(reader *r, size_t place, size_t places[MODEL_MEMBERS])
{
    char type[64];
    r->json.at = place;
    TSR__TRY(tsr__json_type(&r->json, sizeof type, type));
    if (strcmp(type, "BPE") != 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "tokenizer: offset %zu: models of the type %s are not supported; only BPE "
                         "is",
                         place, type);
    TSR__TRY(find_members(r, model_members, places));
    TSR__TRY(refuse(r, places[DROPOUT], "dropout"));
    TSR__TRY(refuse(r, places[PREFIX], "continuing_subword_prefix"));
    TSR__TRY(refuse(r, places[SUFFIX], "end_of_word_suffix"));
    TSR__TRY(read_flag(r, places[BYTE_FALLBACK], &r->byte_fallback));
    TSR__TRY(read_flag(r, places[FUSE_UNKNOWN], &r->tokenizer->fuse_unknown));
    TSR__TRY(read_flag(r, places[IGNORE_MERGES], &r->tokenizer->whole_words));
    if (places[VOCAB] == 0 || places[MERGES] == 0)
        return tsr__json_fail(&r->json, place, "a model without \"%s\"",
                              places[VOCAB] == 0 ? "vocab" : "merges");
    r->json.at = places[VOCAB];
    return read_vocabulary(r);
}

/* Added tokens --------------------------------------------------------------------------------- */

typedef struct added_token {
    uint64_t id;
    bool special, single_word, strip_left, strip_right, normalized;
} added_token;

static tsr_status read_added_members(reader *r, added_token *token, bool *complete)
{
    enum { ID, CONTENT, SPECIAL, SINGLE_WORD, LSTRIP, RSTRIP, NORMALIZED };
    static const char *const names[] = {"id",     "content", "special",    "single_word",
                                        "lstrip", "rstrip",  "normalized", NULL};
    unsigned seen = 0;
    bool more = false;
    TSR__TRY(tsr__json_enter(&r->json, '{'));
    for (;;) {
        int member = 0;
        TSR__TRY(tsr__json_member(&r->json, r->key, &more));
        if (!more)
            break;
        TSR__TRY(tsr__json_known(&r->json, names, r->key, &seen, &member));
        bool *flags[] = {[SPECIAL] = &token->special,
                         [SINGLE_WORD] = &token->single_word,
                         [LSTRIP] = &token->strip_left,
                         [RSTRIP] = &token->strip_right,
                         [NORMALIZED] = &token->normalized};
        TSR__TRY(member == ID        ? tsr__json_integer(&r->json, &token->id)
                 : member == CONTENT ? tsr__json_string(&r->json, sizeof r->other, r->other)
                                     : tsr__json_bool(&r->json, flags[member]));
    }
    *complete = (seen & 1u << ID) != 0 && (seen & 1u << CONTENT) != 0;
    return TSR_OK;
}

/* Adds an added token to the vocabulary. If the vocabulary has it already, changes its type. */
static tsr_status put_in_vocabulary(reader *r, const added_token *token, size_t size)
{
    tsr__vocabulary *vocabulary = &r->tokenizer->vocabulary;
    tsr__token_type type = token->special ? TSR__TOKEN_CONTROL : TSR__TOKEN_USER;
    if (token->id >= vocabulary->count || vocabulary->tokens[token->id].type == TSR__TOKEN_MISSING)
        TSR__TRY(tsr__vocabulary_add(vocabulary, token->id, r->other, size, type));
    tsr__token *existing = &vocabulary->tokens[token->id];
    if (existing->spelling_size != size ||
        memcmp(vocabulary->strings.data + existing->spelling, r->other, size) != 0)
        return tsr__vocabulary_add(vocabulary, token->id, r->other, size, type); /* always fails */
    existing->type = type;
    existing->ends = token->special && tsr__is_end_spelling(r->other, size);
    return TSR_OK;
}

static tsr_status read_added(reader *r)
{
    added_token token = {0};
    bool complete = false;
    size_t start = r->json.at;
    TSR__TRY(read_added_members(r, &token, &complete));
    if (!complete)
        return tsr__json_fail(&r->json, start, "an added token without \"id\" or \"content\"");
    TSR__TRY(check_id(r, start, token.id));
    size_t size = strlen(r->other);
    TSR__TRY(put_in_vocabulary(r, &token, size));
    const tsr__added_token added = {.id = (int32_t)token.id,
                                    .control = token.special,
                                    .single_word = token.single_word,
                                    .strip_left = token.strip_left,
                                    .strip_right = token.strip_right};
    /* The text of a token that is searched in normalised text must be normalised, too. */
    tsr_tokenizer *tokenizer = r->tokenizer;
    if (!token.normalized || tokenizer->normalizer.count == 0)
        return tsr__added_add(&tokenizer->added[0], r->other, size, &added);
    tsr__strings text = {0}, work = {0};
    tsr_status status =
        tsr__normalize(&tokenizer->normalizer, r->other, size, true, &r->normal_left, &text, &work);
    if (status == TSR_OK)
        status = tsr__added_add(&tokenizer->added[1], text.data, text.size, &added);
    tsr__free(text.data);
    tsr__free(work.data);
    return status;
}

static tsr_status read_all_added(reader *r, size_t place)
{
    bool more = false;
    r->json.at = place;
    if (place == 0)
        return TSR_OK;
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (;;) {
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(read_added(r));
    }
}

/* tokenizer_config.json ------------------------------------------------------------------------ */

/* Reads a token's spelling: a string, or an object with the member "content". */
static tsr_status read_spelling(reader *r, tsr__json *json)
{
    bool more = false;
    if (tsr__json_peek(json) != '{')
        return tsr__json_string(json, sizeof r->other, r->other);
    r->other[0] = '\0';
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, r->key, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(strcmp(r->key, "content") == 0 ? tsr__json_string(json, sizeof r->other, r->other)
                                                : tsr__json_skip(json));
    }
}

static tsr_status read_config(reader *r, tsr__json *json)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", NULL};
    tsr_tokenizer *tokenizer = r->tokenizer;
    int32_t *ids[] = {&tokenizer->bos, &tokenizer->eos, &tokenizer->pad};
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, r->key, &more));
        if (!more)
            return tsr__json_end(json);
        int found = tsr__json_find(names, r->key);
        if (found < 0 || tsr__json_peek(json) == 'n') {
            TSR__TRY(tsr__json_skip(json));
            continue;
        }
        size_t offset = json->at;
        TSR__TRY(read_spelling(r, json));
        char shown[TSR__SPELLING_TEXT];
        *ids[found] = tsr__vocabulary_find(&tokenizer->vocabulary, r->other, strlen(r->other));
        if (*ids[found] < 0)
            return tsr__json_fail(json, offset, "\"%s\" is %s, which is not in the vocabulary",
                                  names[found],
                                  tsr__spelling_text(r->other, strlen(r->other), shown));
    }
}

/* The document --------------------------------------------------------------------------------- */

enum { MODEL, ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, DOCUMENT_MEMBERS };
static const char *const document_members[] = {
    "model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", NULL};

static tsr_status read_unknown(reader *r, size_t place)
{
    char shown[TSR__SPELLING_TEXT];
    r->json.at = place;
    if (place == 0)
        return TSR_OK;
    TSR__TRY(tsr__json_string(&r->json, sizeof r->other, r->other));
    size_t size = strlen(r->other);
    int32_t id = tsr__vocabulary_find(&r->tokenizer->vocabulary, r->other, size);
    if (id < 0)
        return tsr__json_fail(&r->json, place,
                              "\"unk_token\" is %s, which is not in the vocabulary",
                              tsr__spelling_text(r->other, size, shown));
    r->tokenizer->unknown = id;
    return TSR_OK;
}

/* Reads the pre-tokenizer and the decoder, checks that they fit together, and sets the kind of the
 * tokenizer. */
static tsr_status choose_kind(reader *r, const size_t places[DOCUMENT_MEMBERS])
{
    tsr_tokenizer *tokenizer = r->tokenizer;
    tsr__json_decoding decoding = {0};
    bool byte_level = false;
    if (places[PRE_TOKENIZER] > 0) {
        r->json.at = places[PRE_TOKENIZER];
        TSR__TRY(tsr__json_pre_tokenizer(&r->json, tokenizer, &byte_level));
    }
    if (places[DECODER] == 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "tokenizer: a tokenizer without a decoder, which "
                                              "writes spaces between tokens, is not supported");
    r->json.at = places[DECODER];
    TSR__TRY(tsr__json_decoder(&r->json, &decoding));
    if (byte_level != decoding.byte_level)
        return tsr__fail(
            TSR_ERR_INVALID,
            "tokenizer: the pre-tokenizer %s bytes by the byte-level alphabet, and the "
            "decoder %s",
            byte_level ? "writes" : "does not write",
            decoding.byte_level ? "reads it" : "does not read it");
    tokenizer->kind = byte_level ? TSR_TOKENIZER_BYTE_BPE : TSR_TOKENIZER_BPE;
    tokenizer->spells_spaces = decoding.spells_spaces;
    tokenizer->strips_start = decoding.strips_start;
    return TSR_OK;
}

static tsr_status read_document(reader *r)
{
    tsr_tokenizer *tokenizer = r->tokenizer;
    size_t places[DOCUMENT_MEMBERS] = {0}, model[MODEL_MEMBERS] = {0};
    TSR__TRY(find_members(r, document_members, places));
    TSR__TRY(tsr__json_end(&r->json));
    if (places[MODEL] == 0)
        return tsr__json_fail(&r->json, 0, "a tokenizer.json without \"model\"");
    TSR__TRY(read_model_head(r, places[MODEL], model));
    if (places[NORMALIZER] > 0) {
        r->json.at = places[NORMALIZER];
        TSR__TRY(tsr__json_normalizer(&r->json, tokenizer));
    }
    TSR__TRY(read_all_added(r, places[ADDED]));
    TSR__TRY(tsr__vocabulary_index(&tokenizer->vocabulary));
    TSR__TRY(read_unknown(r, model[UNKNOWN]));
    r->json.at = model[MERGES];
    TSR__TRY(read_merges(r));
    TSR__TRY(choose_kind(r, places));
    if (places[POST_PROCESSOR] > 0) {
        r->json.at = places[POST_PROCESSOR];
        TSR__TRY(tsr__json_post_processor(&r->json, tokenizer));
    }
    if (tokenizer->before > 0)
        tokenizer->bos = tokenizer->around[0];
    if (tokenizer->after > 0)
        tokenizer->eos = tokenizer->around[tokenizer->before + tokenizer->after - 1];
    return TSR_OK;
}

tsr_status tsr__tokenizer_read_json(const char *text, size_t size, const char *config,
                                    size_t config_size, tsr_tokenizer *tokenizer)
{
    reader *r = tsr__calloc(1, sizeof *r);
    if (r == NULL)
        return TSR_ERR_NO_MEMORY;
    r->json = (tsr__json){.text = text, .size = size, .what = "tokenizer"};
    r->tokenizer = tokenizer;
    r->normal_left = tsr__normal_limit(size);
    tsr_status status = read_document(r);
    tsr__json json = {.text = config, .size = config_size, .what = "tokenizer_config.json"};
    if (status == TSR_OK && config != NULL)
        status = read_config(r, &json);
    tsr__free(r);
    return status == TSR_OK ? tsr__tokenizer_complete(tokenizer) : status;
}
