/* Creates, completes and queries a tokenizer. */
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "tokenizer/byte_alphabet.h"

tsr_tokenizer *tsr__tokenizer_create(void)
{
    tsr_tokenizer *tokenizer = tsr__calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL)
        return NULL;
    tokenizer->trie = tsr__trie_place_create();
    if (tokenizer->trie == NULL) {
        tsr__free(tokenizer);
        return NULL;
    }
    tokenizer->bos = tokenizer->eos = tokenizer->pad = tokenizer->unknown = -1;
    for (int b = 0; b < 256; b++)
        tokenizer->bytes[b] = -1;
    return tokenizer;
}

void tsr_tokenizer_close(tsr_tokenizer **tokenizer)
{
    if (tokenizer == NULL || *tokenizer == NULL)
        return;
    tsr_tokenizer *old = *tokenizer;
    tsr__vocabulary_finish(&old->vocabulary);
    tsr__merges_finish(&old->merges);
    tsr__free(old->scores);
    tsr__free(old->chat_template);
    tsr__added_finish(&old->added[0]);
    tsr__added_finish(&old->added[1]);
    tsr__normalizer_finish(&old->normalizer);
    tsr__normalizer_finish(&old->late);
    tsr__free(old->around);
    tsr__trie_place_destroy(old->trie);
    tsr__free(old);
    *tokenizer = NULL;
}

tsr_status tsr__tokenizer_add_around(tsr_tokenizer *tokenizer, int32_t id, bool after)
{
    void *around = tokenizer->around;
    size_t count = tokenizer->before + tokenizer->after;
    TSR__REQUIRE(count < TSR__MAX_AROUND, "tokenizer: more than %d tokens stand around a text",
                 TSR__MAX_AROUND);
    TSR__TRY(tsr__grow(&around, &tokenizer->around_capacity, count + 1, sizeof *tokenizer->around));
    tokenizer->around = around;
    tokenizer->around[count] = id;
    tokenizer->before += !after;
    tokenizer->after += after;
    return TSR_OK;
}

#define END_OF_MESSAGE "<|end|>"
#define END_OF_REPLY "<|return|>"

bool tsr__is_end_spelling(const char *text, size_t size)
{
    static const char *const ends[] = {
        "<|eot_id|>", "<|eom_id|>",    "<|im_end|>",      END_OF_MESSAGE, "<end_of_turn>",
        "<turn|>",    "<|endoftext|>", "<|end_of_text|>", "<EOT>",        "<｜end▁of▁sentence｜>",
        END_OF_REPLY, "<|call|>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strlen(ends[i]) == size && memcmp(ends[i], text, size) == 0)
            return true;
    return false;
}

/* The bytes of tokens -------------------------------------------------------------------------- */

int tsr__byte_spelling(const char *text, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || text[3] == '\0' ||
        text[4] == '\0')
        return -1;
    const char *high = strchr(digits, text[3]), *low = strchr(digits, text[4]);
    return high != NULL && low != NULL ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

/* Writes the bytes that a token stands for to `bytes`, and returns their number, which is at most
 * the size of the spelling. */
static size_t token_bytes(const tsr_tokenizer *tokenizer, const tsr__token *token,
                          const char *spelling, char *bytes)
{
    static const char space[] = "▁";
    size_t size = token->spelling_size, length = 0;
    bool is_text = token->type == TSR__TOKEN_NORMAL || token->type == TSR__TOKEN_UNUSED;
    if (token->type == TSR__TOKEN_BYTE) {
        bytes[0] = (char)tsr__byte_spelling(spelling, size);
        return 1;
    }
    if (is_text && tokenizer->kind == TSR_TOKENIZER_BYTE_BPE &&
        tsr__alphabet_decode(spelling, size, bytes, &length))
        return length;
    /* As in llama.cpp, "▁" stands for a space in user-defined tokens, too. */
    bool has_spaces = tokenizer->kind != TSR_TOKENIZER_BYTE_BPE && tokenizer->spells_spaces &&
                      (is_text || token->type == TSR__TOKEN_USER);
    for (size_t offset = 0; offset < size;) {
        bool is_space =
            has_spaces && size - offset >= 3 && memcmp(spelling + offset, space, 3) == 0;
        bytes[length++] = is_space ? ' ' : spelling[offset];
        offset += is_space ? 3 : 1;
    }
    return length;
}

tsr_status tsr__tokenizer_complete(tsr_tokenizer *tokenizer)
{
    tsr__vocabulary *vocabulary = &tokenizer->vocabulary;
    char bytes[TSR_TOKENIZER_MAX_TOKEN_BYTES + 1];
    for (size_t id = 0; id < vocabulary->count; id++) {
        tsr__token *token = &vocabulary->tokens[id];
        size_t size =
            token_bytes(tokenizer, token, tsr__token_spelling(vocabulary, (int32_t)id), bytes);
        TSR__TRY(tsr__strings_add(&vocabulary->strings, bytes, size, &token->bytes));
        token->bytes_size = (uint32_t)size;
        bool is_byte = tokenizer->kind == TSR_TOKENIZER_BYTE_BPE
                           ? size == 1 && token->type == TSR__TOKEN_NORMAL
                           : token->type == TSR__TOKEN_BYTE;
        if (is_byte)
            tokenizer->bytes[(unsigned char)bytes[0]] = (int32_t)id;
    }
    /* In gpt-oss, a reply has several messages, each of which ends with <|end|>. */
    const int32_t message =
                      tsr__vocabulary_find(vocabulary, END_OF_MESSAGE, strlen(END_OF_MESSAGE)),
                  reply = tsr__vocabulary_find(vocabulary, END_OF_REPLY, strlen(END_OF_REPLY));
    if (message >= 0 && reply >= 0 && vocabulary->tokens[reply].ends)
        vocabulary->tokens[message].ends = false;
    tsr__added_sort(&tokenizer->added[0]);
    tsr__added_sort(&tokenizer->added[1]);
    return TSR_OK;
}

/* Queries -------------------------------------------------------------------------------------- */

const char *tsr_tokenizer_kind_name(tsr_tokenizer_kind kind)
{
    static const char *const names[] = {"spm", "bpe", "byte-bpe"};
    return (int)kind >= 0 && (int)kind < 3 ? names[kind] : "?";
}

tsr_status tsr_tokenizer_get_info(const tsr_tokenizer *tokenizer, tsr_tokenizer_info *out)
{
    TSR__REQUIRE(tokenizer != NULL && out != NULL, "tokenizer: %s is NULL",
                 tokenizer == NULL ? "the tokenizer" : "out");
    const tsr_tokenizer_info info = {
        .kind = tokenizer->kind,
        .words = tokenizer->words.count > 0 ? tokenizer->words.name : "none",
        .bos = tokenizer->bos,
        .eos = tokenizer->eos,
        .pad = tokenizer->pad,
        .unknown = tokenizer->unknown,
    };
    TSR__GIVE(tsr_tokenizer_info, &info, out);
    return TSR_OK;
}

int32_t tsr_tokenizer_size(const tsr_tokenizer *tokenizer)
{
    return tokenizer != NULL ? (int32_t)tokenizer->vocabulary.count : 0;
}

static bool is_id(const tsr_tokenizer *tokenizer, int32_t id)
{
    return tokenizer != NULL && id >= 0 && (size_t)id < tokenizer->vocabulary.count;
}

bool tsr_tokenizer_is_end(const tsr_tokenizer *tokenizer, int32_t id)
{
    return is_id(tokenizer, id) && (id == tokenizer->eos || tokenizer->vocabulary.tokens[id].ends);
}

int32_t tsr_tokenizer_find(const tsr_tokenizer *tokenizer, const char *text, size_t size)
{
    return tokenizer != NULL && (text != NULL || size == 0)
               ? tsr__vocabulary_find(&tokenizer->vocabulary, size > 0 ? text : "", size)
               : -1;
}

tsr_status tsr_tokenizer_get_token(const tsr_tokenizer *tokenizer, int32_t id, tsr_token_info *out)
{
    TSR__REQUIRE(tokenizer != NULL && out != NULL, "tokenizer: %s is NULL",
                 tokenizer == NULL ? "the tokenizer" : "out");
    TSR__TRY(tsr__check_id(tokenizer, id));
    const tsr__token *token = &tokenizer->vocabulary.tokens[id];
    const tsr_token_info info = {
        .text = tsr__token_spelling(&tokenizer->vocabulary, id),
        .size_bytes = token->spelling_size,
        .control = tsr__is_control(token),
    };
    TSR__GIVE(tsr_token_info, &info, out);
    return TSR_OK;
}

tsr_status tsr__check_id(const tsr_tokenizer *tokenizer, int32_t id)
{
    TSR__REQUIRE(is_id(tokenizer, id), "tokenizer: id %d is out of range: ids are 0 to %zu",
                 (int)id, tokenizer->vocabulary.count - 1);
    return TSR_OK;
}
