/* tokenizer.model of SentencePiece: a message of protocol buffers with the pieces of the
 * vocabulary, and the parameters of the training and of the normaliser. Source: the definition of
 * the message, github.com/google/sentencepiece, src/sentencepiece_model.proto. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_model.h"
#include "tokenizer/tokenizer_read.h"

/* A message in the file: bytes[offset … end − 1] are the fields that have not been read yet. */
typedef struct message {
    const uint8_t *bytes;
    uint64_t offset, end;
} message;

/* A field: its number, and its value. If it is a string or a message, `value` is its size, and it
 * is bytes[start … start + value - 1]. */
typedef struct field {
    uint64_t number, value, start;
    unsigned wire;
} field;

typedef struct reader {
    tsr_tokenizer *tokenizer;
    const tsr_tokenizer *added; /* the tokenizer with further tokens; may be NULL */
    float *scores;
    size_t capacity;
    bool adds_space, removes_spaces, escapes_spaces, is_bpe, has_map;
} reader;

static tsr_status broken(uint64_t offset, const char *what)
{
    return tsr__fail(TSR_ERR_INVALID, "tokenizer: offset %" PRIu64 ": %s", offset, what);
}

static tsr_status read_number(message *m, uint64_t *out)
{
    const uint64_t start = m->offset;
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (m->offset == m->end)
            return broken(start, "the file ends inside a number");
        const uint8_t byte = m->bytes[m->offset++];
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return TSR_OK;
    }
    return broken(start, "a number of more than 64 bits");
}

static tsr_status read_field(message *m, field *out)
{
    uint64_t key = 0, size;
    const uint64_t start = m->offset;
    TSR__TRY(read_number(m, &key));
    *out = (field){.number = key >> 3, .wire = (unsigned)(key & 7)};
    if (out->wire == TSR__WIRE_NUMBER)
        return read_number(m, &out->value);
    if (out->wire == TSR__WIRE_BYTES)
        TSR__TRY(read_number(m, &out->value));
    else if (out->wire != TSR__WIRE_32 && out->wire != TSR__WIRE_64)
        return broken(start, "this is no tokenizer.model: a field of an unknown type");
    size = out->wire == TSR__WIRE_BYTES ? out->value : out->wire == TSR__WIRE_32 ? 4 : 8;
    if (size > m->end - m->offset)
        return tsr__fail(TSR_ERR_INVALID,
                         "tokenizer: offset %" PRIu64 ": a field of %" PRIu64
                         " bytes, of which %" PRIu64 " are there",
                         start, size, m->end - m->offset);
    out->start = m->offset;
    m->offset += size;
    return TSR_OK;
}

/* Pieces --------------------------------------------------------------------------------------- */

/* Sets the type of a token that was not an added token until now. If its type makes it an added
 * token, it is also added to added[0]. */
static tsr_status set_type(tsr_tokenizer *t, int32_t id, tsr__token_type type)
{
    tsr__token *token = &t->vocabulary.tokens[id];
    const char *text = tsr__token_spelling(&t->vocabulary, id);
    const size_t size = token->spelling_size;
    token->type = type;
    token->ends = type == TSR__TOKEN_CONTROL && tsr__is_end_spelling(text, size);
    const tsr__added_token added = {.id = id, .control = tsr__is_control(token)};
    return tsr__is_added(token) ? tsr__added_add(&t->added[0], text, size, &added) : TSR_OK;
}

static tsr_status add_piece(reader *r, const char *text, size_t size, tsr__token_type type,
                            uint32_t score_bits)
{
    tsr__vocabulary *v = &r->tokenizer->vocabulary;
    const int32_t id = (int32_t)v->count;
    void *scores = r->scores;
    TSR__TRY(tsr__grow(&scores, &r->capacity, v->count + 1, sizeof *r->scores));
    r->scores = scores;
    memcpy(&r->scores[v->count], &score_bits, sizeof score_bits);
    TSR__TRY(tsr__vocabulary_add(v, v->count, text, size, type));
    return set_type(r->tokenizer, id, type);
}

static tsr_status read_piece(reader *r, message m)
{
    const tsr__vocabulary *v = &r->tokenizer->vocabulary;
    const uint64_t start = m.offset;
    const char *text = "";
    size_t size = 0;
    uint32_t bits = 0;
    uint64_t type = TSR__TOKEN_NORMAL;
    while (m.offset < m.end) {
        field f;
        TSR__TRY(read_field(&m, &f));
        if (f.number == TSR__PIECE_TEXT && f.wire == TSR__WIRE_BYTES) {
            text = (const char *)m.bytes + f.start;
            size = (size_t)f.value;
        } else if (f.number == TSR__PIECE_SCORE && f.wire == TSR__WIRE_32) {
            bits = (uint32_t)tsr__little_endian(m.bytes + f.start, 4);
        } else if (f.number == TSR__PIECE_TYPE && f.wire == TSR__WIRE_NUMBER) {
            type = f.value;
        }
    }
    if (type < TSR__TOKEN_NORMAL || type > TSR__TOKEN_BYTE ||
        (type == TSR__TOKEN_BYTE && tsr__byte_spelling(text, size) < 0))
        return tsr__fail(TSR_ERR_INVALID,
                         "tokenizer: offset %" PRIu64 ": piece %zu has type %" PRIu64
                         "; types are 1 to 6, and pieces of type 6 are <0x00> to <0xFF>",
                         start, v->count, type);
    return add_piece(r, text, size, (tsr__token_type)type, bits);
}

/* Gives a token of the file the type that it has in `all`, the vocabulary of tokenizer.json, if it
 * is an added token there. A control token of the file, such as Phi-3's "</s>", may be a
 * user-defined token in tokenizer.json. Any other difference is an error. */
static tsr_status take_type(reader *r, int32_t id, const tsr__vocabulary *all)
{
    tsr__token *here = &r->tokenizer->vocabulary.tokens[id];
    const tsr__token *added_token = &all->tokens[id];
    char shown[TSR__SPELLING_TEXT];
    if (!tsr__is_added(here))
        return tsr__is_added(added_token) ? set_type(r->tokenizer, id, added_token->type) : TSR_OK;
    if (tsr__is_added(added_token) && tsr__is_control(here) == tsr__is_control(added_token))
        return TSR_OK;
    if (here->type == TSR__TOKEN_CONTROL && added_token->type == TSR__TOKEN_USER) {
        here->type = added_token->type;
        here->ends = false;
        return TSR_OK;
    }
    return tsr__fail(
        TSR_ERR_UNSUPPORTED,
        "tokenizer: token %d, %s, is %s in tokenizer.model and %s in tokenizer.json", (int)id,
        tsr__spelling_text(tsr__token_spelling(all, id), added_token->spelling_size, shown),
        tsr__is_control(here) ? "a control token" : "an added token",
        !tsr__is_added(added_token)    ? "an ordinary one"
        : tsr__is_control(added_token) ? "a control token"
                                       : "an added one");
}

/* Takes over from `added` how texts are searched for its added tokens. */
static tsr_status take_searches(reader *r)
{
    const tsr_tokenizer *from = r->added;
    tsr__added *to = &r->tokenizer->added[0];
    bool *strips = tsr__calloc(from->vocabulary.count, sizeof *strips);
    if (strips == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int stage = 0; stage < 2; stage++)
        for (size_t i = 0; i < from->added[stage].count; i++)
            strips[from->added[stage].tokens[i].id] = from->added[stage].tokens[i].strip_right;
    for (size_t i = 0; i < to->count; i++) {
        tsr__added_token *token = &to->tokens[i];
        token->strip_right = strips[token->id];
        token->control = tsr__is_control(&r->tokenizer->vocabulary.tokens[token->id]);
    }
    tsr__free(strips);
    return TSR_OK;
}

/* Checks that the vocabulary of `added` begins with the tokens of the file, and adds its other
 * tokens to the vocabulary. */
static tsr_status add_others(reader *r)
{
    const tsr__vocabulary *v = &r->tokenizer->vocabulary, *all = &r->added->vocabulary;
    char shown[TSR__SPELLING_TEXT];
    TSR__REQUIRE(v->count <= all->count,
                 "tokenizer: tokenizer.model has %zu tokens, and tokenizer.json %zu", v->count,
                 all->count);
    for (size_t i = 0; i < all->count; i++) {
        const char *text = tsr__token_spelling(all, (int32_t)i);
        const tsr__token *token = &all->tokens[i];
        const size_t size = token->spelling_size;
        const bool is_there = i < v->count;
        if (is_there && v->tokens[i].spelling_size == size &&
            memcmp(tsr__token_spelling(v, (int32_t)i), text, size) == 0) {
            TSR__TRY(take_type(r, (int32_t)i, all));
            continue;
        }
        if (is_there || token->type == TSR__TOKEN_NORMAL)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "tokenizer: tokenizer.model does not have token %zu of "
                             "tokenizer.json, %s",
                             i, tsr__spelling_text(text, size, shown));
        TSR__TRY(add_piece(r, text, size, token->type, 0));
    }
    return TSR_OK;
}

/* Parameters ----------------------------------------------------------------------------------- */

static tsr_status read_training(reader *r, message m)
{
    tsr_tokenizer *t = r->tokenizer;
    const struct {
        uint64_t number;
        int32_t *id;
    } ids[] = {{TSR__TRAINING_UNKNOWN, &t->unknown},
               {TSR__TRAINING_BOS, &t->bos},
               {TSR__TRAINING_EOS, &t->eos},
               {TSR__TRAINING_PAD, &t->pad}};
    while (m.offset < m.end) {
        field f;
        TSR__TRY(read_field(&m, &f));
        if (f.wire != TSR__WIRE_NUMBER)
            continue;
        if (f.number == TSR__TRAINING_MODEL)
            r->is_bpe = f.value == TSR__MODEL_BPE;
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
            if (ids[i].number == f.number) /* -1, which is read as 2^64 - 1, means none */
                *ids[i].id = f.value < TSR_TOKENIZER_MAX_SIZE ? (int32_t)f.value : -1;
    }
    return TSR_OK;
}

static tsr_status read_normalizer(reader *r, message m)
{
    while (m.offset < m.end) {
        field f;
        TSR__TRY(read_field(&m, &f));
        if (f.number == TSR__NORMALIZER_MAP && f.wire == TSR__WIRE_BYTES)
            r->has_map = f.value > 0;
        if (f.wire != TSR__WIRE_NUMBER)
            continue;
        if (f.number == TSR__NORMALIZER_ADDS_SPACE)
            r->adds_space = f.value != 0;
        if (f.number == TSR__NORMALIZER_REMOVES_SPACES)
            r->removes_spaces = f.value != 0;
        if (f.number == TSR__NORMALIZER_ESCAPES_SPACES)
            r->escapes_spaces = f.value != 0;
    }
    return TSR_OK;
}

static tsr_status read_model(reader *r, message m)
{
    while (m.offset < m.end) {
        field f;
        TSR__TRY(read_field(&m, &f));
        const message inside = {m.bytes, f.start, f.start + f.value};
        if (f.wire != TSR__WIRE_BYTES)
            continue;
        TSR__TRY(f.number == TSR__MODEL_PIECE        ? read_piece(r, inside)
                 : f.number == TSR__MODEL_TRAINING   ? read_training(r, inside)
                 : f.number == TSR__MODEL_NORMALIZER ? read_normalizer(r, inside)
                                                     : TSR_OK);
    }
    return TSR_OK;
}

/* Fails if the file requires something that this library does not do. */
static tsr_status refuse(const reader *r)
{
    const char *what = !r->is_bpe           ? "that is not BPE"
                       : r->has_map         ? "whose normaliser changes characters"
                       : r->removes_spaces  ? "that removes repeated spaces"
                       : !r->escapes_spaces ? "that does not write spaces as '▁'"
                                            : NULL;
    return what == NULL ? TSR_OK
                        : tsr__fail(TSR_ERR_UNSUPPORTED,
                                    "tokenizer: a tokenizer.model %s is not supported", what);
}

static tsr_status check_special(const tsr_tokenizer *t)
{
    const int32_t ids[] = {t->unknown, t->bos, t->eos, t->pad};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        TSR__REQUIRE(ids[i] < (int32_t)t->vocabulary.count,
                     "tokenizer: special id %d; ids are 0 to %zu", (int)ids[i],
                     t->vocabulary.count - 1);
    return TSR_OK;
}

static tsr_status read_model_messages(reader *r, message m)
{
    tsr_tokenizer *t = r->tokenizer;
    /* the defaults in the definition, for fields that are missing */
    t->unknown = 0;
    t->bos = 1;
    t->eos = 2;
    TSR__TRY(read_model(r, m));
    TSR__TRY(refuse(r));
    if (r->added != NULL) {
        TSR__TRY(add_others(r));
        TSR__TRY(take_searches(r));
    }
    TSR__TRY(tsr__vocabulary_index(&t->vocabulary));
    TSR__TRY(check_special(t));
    TSR__TRY(tsr__tokenizer_make_spm(t, r->scores, r->adds_space));
    if (t->bos >= 0)
        TSR__TRY(tsr__tokenizer_add_around(t, t->bos, false));
    return tsr__tokenizer_complete(t);
}

tsr_status tsr__tokenizer_read_model(tsr__file *file, tsr_tokenizer *tokenizer)
{
    return tsr__tokenizer_read_model_with(file, NULL, tokenizer);
}

tsr_status tsr__tokenizer_read_model_with(tsr__file *file, const tsr_tokenizer *added,
                                          tsr_tokenizer *tokenizer)
{
    char *bytes = NULL;
    file->what = "tokenizer";
    TSR__REQUIRE(file->size <= TSR__MAX_HEADER,
                 "tokenizer: %" PRIu64 " bytes are more than the %" PRIu64 " allowed", file->size,
                 TSR__MAX_HEADER);
    TSR__TRY(tsr__file_load(file, 0, file->size, "the file", &bytes));
    reader r = {.tokenizer = tokenizer,
                .added = added,
                .adds_space = true,
                .removes_spaces = true,
                .escapes_spaces = true};
    const tsr_status status =
        read_model_messages(&r, (message){.bytes = (const uint8_t *)bytes, .end = file->size});
    tsr__free(r.scores);
    tsr__free(bytes);
    return status;
}
