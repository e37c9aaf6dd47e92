/* Writes tokenizers into GGUF files; see gguf_tokenizer_read.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/float16.h"
#include "shard/formats/gguf_metadata.h"
#include "tokenizer/encode_text.h"
#include "tokenizer/phi3_added_tokens.h"
#include "tokenizer/tokenizer_write.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_expressions.h"

static const char format[] = "GGUF files", space_sign[] = "▁";

tsr_status tsr__tokenizer_cannot(const char *where, const char *what)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "tokenizer: %s cannot say %s", where, what);
}

tsr_status tsr__tokenizer_check_around(const tsr_tokenizer *t)
{
    const bool bos = t->before == 0 || (t->before == 1 && t->around[0] == t->bos),
               eos = t->after == 0 || (t->after == 1 && t->around[t->before] == t->eos);
    return bos && eos ? TSR_OK
                      : tsr__tokenizer_cannot("the destination",
                                              "which tokens stand around a text, because they are "
                                              "not BOS and EOS");
}

tsr_status tsr__tokenizer_check_added(const char *where, bool may_strip, const tsr_tokenizer *t)
{
    for (int stage = 0; stage < 2; stage++)
        for (size_t i = 0; i < t->added[stage].count; i++) {
            const tsr__added_token *token = &t->added[stage].tokens[i];
            char shown[TSR__SPELLING_TEXT];
            if (!token->single_word && !token->strip_left && (may_strip || !token->strip_right))
                continue;
            return tsr__fail(
                TSR_ERR_UNSUPPORTED, "tokenizer: %s cannot say that added token %s %s", where,
                tsr__spelling_text(tsr__token_spelling(&t->vocabulary, token->id),
                                   t->vocabulary.tokens[token->id].spelling_size, shown),
                token->single_word ? "is a single word" : "includes the spaces beside it");
        }
    return TSR_OK;
}

bool tsr__tokenizer_strips_right(const tsr_tokenizer *t)
{
    for (int stage = 0; stage < 2; stage++)
        for (size_t i = 0; i < t->added[stage].count; i++)
            if (t->added[stage].tokens[i].strip_right)
                return true;
    return false;
}

/* Checks the added tokens of a Phi-3 model. GGUF files do not say which of them include the spaces
 * after them, so these must be the same as in all GGUF files of Phi-3. The tokens that llama.cpp
 * requires in such a file must also exist. */
static tsr_status check_phi3(const tsr_tokenizer *t)
{
    const tsr__vocabulary *v = &t->vocabulary;
    char shown[TSR__SPELLING_TEXT];
    for (int i = 0; i <= TSR__PHI3_PLAIN; i++) {
        const char *needed = i < TSR__PHI3_PLAIN ? tsr__phi3_plain[i] : "</s>";
        if (tsr__vocabulary_find(v, needed, strlen(needed)) < 0)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "tokenizer: %s can say that added tokens include the spaces after "
                             "them only of a vocabulary with %s",
                             format, needed);
    }
    for (int stage = 0; stage < 2; stage++)
        for (size_t i = 0; i < t->added[stage].count; i++) {
            const tsr__added_token *token = &t->added[stage].tokens[i];
            const char *text = tsr__token_spelling(v, token->id);
            const size_t size = v->tokens[token->id].spelling_size;
            if (token->strip_right == tsr__phi3_strips(text, size))
                continue;
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "tokenizer: %s cannot say that added token %s %s the spaces after it, "
                             "and that others %s",
                             format, tsr__spelling_text(text, size, shown),
                             token->strip_right ? "includes" : "does not include",
                             token->strip_right ? "do not" : "do");
        }
    return TSR_OK;
}

static tsr_status check_byte_bpe(const tsr_tokenizer *t, bool *drops_nfc)
{
    for (size_t i = 0; i < t->normalizer.count; i++)
        if (t->normalizer.steps[i].kind != TSR__NFC)
            return tsr__tokenizer_cannot(format, "how the text is normalised");
    *drops_nfc = t->normalizer.count > 0;
    if (t->late.count > 0)
        return tsr__tokenizer_cannot(format, "that words start with a space (add_prefix_space)");
    if (t->fuse_unknown && t->unknown >= 0)
        return tsr__tokenizer_cannot(format, "that unknown characters become one token (fuse_unk)");
    if (t->strips_start)
        return tsr__tokenizer_cannot(format, "that decoding removes a space at the start");
    return TSR_OK;
}

/* Returns whether each ordinary token is a single character, and there are no merges, normalisers
 * or steps that cut words. Merging by scores then gives the same ids as the empty list of merges.
 * In the file, the token of the space is spelled "▁". */
static bool has_characters_only(const tsr_tokenizer *t)
{
    const tsr__vocabulary *v = &t->vocabulary;
    if (t->kind != TSR_TOKENIZER_BPE || t->merges.count > 0 || t->normalizer.count > 0 ||
        t->late.count > 0 || t->words.count > 0 || t->spells_spaces || t->strips_start ||
        t->unknown >= 0 || tsr__vocabulary_find(v, space_sign, strlen(space_sign)) >= 0)
        return false;
    for (size_t i = 0; i < v->count; i++) {
        uint32_t code;
        const char *spelling = tsr__token_spelling(v, (int32_t)i);
        const size_t size = v->tokens[i].spelling_size;
        if (v->tokens[i].type == TSR__TOKEN_NORMAL &&
            (size == 0 || tsr__character(spelling, size, &code) != size))
            return false;
    }
    return true;
}

bool tsr__tokenizer_is_gemma4(const tsr_tokenizer *t)
{
    const tsr__normal_step *step = t->normalizer.steps;
    const char *strings = t->normalizer.strings.data;
    if (t->kind != TSR_TOKENIZER_BPE || t->normalizer.count != 1 || step->kind != TSR__REPLACE ||
        strcmp(strings + step->from, " ") != 0 || strcmp(strings + step->to, space_sign) != 0 ||
        t->late.count > 0 || t->words.count > 0 || !t->spells_spaces || t->strips_start ||
        t->bos < 0 || t->before != 1)
        return false;
    for (int i = 0; i < 256; i++)
        if (t->bytes[i] < 0)
            return false;
    return true;
}

/* Tokens --------------------------------------------------------------------------------------- */

static tsr_status put_tokens(const tsr_tokenizer *t, int64_t id_count, tsr__gguf_writer *w)
{
    const tsr__vocabulary *v = &t->vocabulary;
    const bool gemma4 = tsr__tokenizer_is_gemma4(t);
    const int32_t space =
        t->kind == TSR_TOKENIZER_BPE && !gemma4 ? tsr__vocabulary_find(v, " ", 1) : -1;
    char text[48];
    TSR__TRY(tsr__gguf_put_array(w, "tokenizer.ggml.tokens", TSR__GGUF_STRING, (uint64_t)id_count));
    for (int64_t i = 0; i < id_count; i++) {
        if ((size_t)i < v->count) {
            TSR__TRY(i == space
                         ? tsr__gguf_put_element_string(w, space_sign, strlen(space_sign))
                         : tsr__gguf_put_element_string(w, tsr__token_spelling(v, (int32_t)i),
                                                        v->tokens[i].spelling_size));
            continue;
        }
        const int size = snprintf(text, sizeof text, "[PAD%" PRId64 "]", i);
        TSR__REQUIRE(tsr__vocabulary_find(v, text, (size_t)size) < 0,
                     "tokenizer: %s is a token already, so the vocabulary cannot be padded", text);
        TSR__TRY(tsr__gguf_put_element_string(w, text, (size_t)size));
    }
    TSR__TRY(
        tsr__gguf_put_array(w, "tokenizer.ggml.token_type", TSR__GGUF_I32, (uint64_t)id_count));
    for (int64_t i = 0; i < id_count; i++) {
        const bool is_byte =
            gemma4 && (size_t)i < v->count &&
            tsr__byte_spelling(tsr__token_spelling(v, (int32_t)i), v->tokens[i].spelling_size) >= 0;
        TSR__TRY(
            tsr__gguf_put_element_bits(w, (uint32_t)(is_byte                ? TSR__TOKEN_BYTE
                                                     : (size_t)i < v->count ? v->tokens[i].type
                                                                            : TSR__TOKEN_UNUSED)));
    }
    return TSR_OK;
}

static tsr_status put_scores(const tsr_tokenizer *t, int64_t id_count, tsr__gguf_writer *w)
{
    const float padding = -1e6f; /* below the scores of all tokens */
    TSR__TRY(tsr__gguf_put_array(w, "tokenizer.ggml.scores", TSR__GGUF_F32, (uint64_t)id_count));
    for (int64_t i = 0; i < id_count; i++)
        TSR__TRY(tsr__gguf_put_element_bits(w, tsr__bits_of_f32((size_t)i >= t->vocabulary.count
                                                                    ? padding
                                                                : t->scores != NULL ? t->scores[i]
                                                                                    : 0)));
    return TSR_OK;
}

static tsr_status put_merges(const tsr_tokenizer *t, tsr__gguf_writer *w)
{
    tsr__pair *pairs = NULL;
    char text[2 * TSR_TOKENIZER_MAX_TOKEN_BYTES + 1];
    TSR__TRY(tsr__merges_in_order(&t->merges, &pairs));
    tsr_status status =
        tsr__gguf_put_array(w, "tokenizer.ggml.merges", TSR__GGUF_STRING, t->merges.count);
    for (size_t i = 0; status == TSR_OK && i < t->merges.count; i++) {
        const int32_t ids[2] = {pairs[i].left, pairs[i].right};
        size_t size = 0;
        for (int stage = 0; stage < 2; stage++) {
            const char *spelling = tsr__token_spelling(&t->vocabulary, ids[stage]);
            const size_t length = t->vocabulary.tokens[ids[stage]].spelling_size;
            if (memchr(spelling, ' ', length))
                status = tsr__tokenizer_cannot(format, "a merge of tokens with spaces");
            memcpy(text + size, spelling, length);
            size += length;
            if (stage == 0)
                text[size++] = ' ';
        }
        if (status == TSR_OK)
            status = tsr__gguf_put_element_string(w, text, size);
    }
    tsr__free(pairs);
    return status;
}

/* Single values -------------------------------------------------------------------------------- */

/* Writes an id. For SentencePiece-style tokenizers, writes a missing id too, because readers
 * otherwise assume the ids 0 to 2. */
static tsr_status put_id(const tsr_tokenizer *t, tsr__gguf_writer *w, const char *key, int32_t id)
{
    return id < 0 && t->kind == TSR_TOKENIZER_BYTE_BPE
               ? TSR_OK
               : tsr__gguf_put_u32(w, key, id < 0 ? UINT32_MAX : (uint32_t)id);
}

/* Writes the tokens that end a text or a turn. There are three keys for them. Readers recognise
 * further ones by their spellings. */
static tsr_status put_ends(const tsr_tokenizer *t, const int32_t *ends, int count,
                           tsr__gguf_writer *w)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const tsr__vocabulary *v = &t->vocabulary;
    int used = 0;
    int32_t written[3] = {-1, -1, -1};
    if (t->eos >= 0)
        written[used++] = t->eos;
    for (int i = 0; i < count && used < 3; i++)
        if (ends[i] != written[0] && ends[i] != written[1])
            written[used++] = ends[i];
    for (size_t i = 0; i < v->count && used < 3; i++) {
        const int32_t id = (int32_t)i;
        if (v->tokens[i].ends && id != written[0] && id != written[1] &&
            !tsr__is_end_spelling(tsr__token_spelling(v, id), v->tokens[i].spelling_size))
            written[used++] = id;
    }
    for (int i = 0; i < used || i < 1; i++)
        TSR__TRY(put_id(t, w, keys[i], written[i]));
    return TSR_OK;
}

static tsr_status put_values(const tsr_tokenizer *t, int32_t bos, const int32_t *ends,
                             int end_count, tsr__gguf_writer *w)
{
    TSR__TRY(tsr__tokenizer_check_around(t));
    TSR__TRY(put_id(t, w, "tokenizer.ggml.bos_token_id", t->bos >= 0 ? t->bos : bos));
    TSR__TRY(put_ends(t, ends, end_count, w));
    if (t->pad >= 0)
        TSR__TRY(put_id(t, w, "tokenizer.ggml.padding_token_id", t->pad));
    TSR__TRY(put_id(t, w, "tokenizer.ggml.unknown_token_id", t->unknown));
    if (t->chat_template != NULL)
        TSR__TRY(tsr__gguf_put_string(w, "tokenizer.chat_template", t->chat_template,
                                      strlen(t->chat_template)));
    TSR__TRY(tsr__gguf_put_bool(w, "tokenizer.ggml.add_bos_token", t->before > 0));
    return tsr__gguf_put_bool(w, "tokenizer.ggml.add_eos_token", t->after > 0);
}

/* Finds the name for the way in which texts are cut into words. A name also says whether a word
 * that is a token is taken whole. Where this changes no ids, a name that says the opposite will do.
 */
static tsr_status find_words(const tsr_tokenizer *t, char out[TSR__WORDS_NAME])
{
    bool changes_nothing = false;
    tsr_status status = tsr__word_splitter_find_name(&t->words, t->whole_words, out);
    if (status != TSR_ERR_UNSUPPORTED)
        return status;
    const tsr__error error = tsr__error_take();
    TSR__TRY(tsr__tokenizer_merges_all(t, &changes_nothing));
    return changes_nothing &&
                   tsr__word_splitter_find_name(&t->words, !t->whole_words, out) == TSR_OK
               ? TSR_OK
               : tsr__fail(status, "%s", error.text);
}

tsr_status tsr__tokenizer_put_gguf(const tsr_tokenizer *t, int64_t vocabulary, int32_t bos,
                                   const int32_t *ends, int end_count, bool phi3,
                                   tsr__gguf_writer *w, bool *drops_nfc)
{
    char words[TSR__WORDS_NAME] = "default";
    const bool gemma4 = tsr__tokenizer_is_gemma4(t);
    const char *model = gemma4 ? "gemma4" : t->kind == TSR_TOKENIZER_BYTE_BPE ? "gpt2" : "llama";
    *drops_nfc = false;
    TSR__REQUIRE((uint64_t)vocabulary >= t->vocabulary.count,
                 "tokenizer: it has %zu tokens, but the model only %" PRId64, t->vocabulary.count,
                 vocabulary);
    if (t->kind == TSR_TOKENIZER_BPE && !gemma4 && !has_characters_only(t))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "tokenizer: tokenizer.json has merges of characters without the scores "
                         "that GGUF files need; the model's tokenizer.model has them");
    TSR__TRY(tsr__tokenizer_check_added(format, phi3, t));
    if (phi3)
        TSR__TRY(check_phi3(t));
    if (t->kind == TSR_TOKENIZER_BYTE_BPE) {
        TSR__TRY(check_byte_bpe(t, drops_nfc));
        TSR__TRY(find_words(t, words));
    }
    TSR__TRY(tsr__gguf_put_string(w, "tokenizer.ggml.model", model, strlen(model)));
    if (!gemma4)
        TSR__TRY(tsr__gguf_put_string(w, "tokenizer.ggml.pre", words, strlen(words)));
    TSR__TRY(put_tokens(t, vocabulary, w));
    TSR__TRY(put_values(t, bos, ends, end_count, w));
    if (t->kind == TSR_TOKENIZER_BYTE_BPE)
        return put_merges(t, w);
    if (gemma4)
        TSR__TRY(put_merges(t, w));
    TSR__TRY(put_scores(t, vocabulary, w));
    return tsr__gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", t->strips_start);
}
