/* Decodes ids: the text is the concatenation of the bytes of all tokens, without some of the
 * spaces. */
#include <inttypes.h>
#include <string.h>

#include "base/struct_size.h"
#include "tokenizer/tokenizer.h"

/* The values of `place` in a decode state. */
enum { AT_START = 0, IN_TEXT = 1, AFTER_CONTROL = 2 };

static tsr_status decode_next(const tsr_tokenizer *tokenizer, tsr_decode_state *state, int32_t id,
                              const char **bytes, size_t *size_bytes)
{
    TSR__REQUIRE(state->control == TSR_DECODE_CONTROL_SKIP ||
                     state->control == TSR_DECODE_CONTROL_SPELL,
                 "tokenizer: control is %d", (int)state->control);
    TSR__TRY(tsr__check_id(tokenizer, id));
    const tsr__token *token = &tokenizer->vocabulary.tokens[id];
    const char *token_bytes = tokenizer->vocabulary.strings.data + token->bytes;
    size_t size = token->bytes_size;
    bool is_control = tsr__is_control(token);
    if (is_control && state->control == TSR_DECODE_CONTROL_SKIP) {
        *bytes = token_bytes;
        *size_bytes = 0;
        if (state->place != AT_START || tokenizer->strips_after_control)
            state->place = AFTER_CONTROL;
        return TSR_OK;
    }
    bool strips = (state->place == AT_START && tokenizer->strips_start) ||
                  (state->place == AFTER_CONTROL && tokenizer->strips_after_control);
    bool is_text = token->type == TSR__TOKEN_NORMAL || token->type == TSR__TOKEN_UNUSED;
    size_t stripped = strips && is_text && size > 0 && token_bytes[0] == ' ';
    *bytes = token_bytes + stripped;
    *size_bytes = size - stripped;
    /* After a user-defined token that was found in the text before merging, the text is treated as
     * after a control token. Such a token stands for its own spelling. If the spelling contains "▁"
     * for spaces, the token can only be the result of merges, and is treated as text. */
    bool was_found = token->type == TSR__TOKEN_USER && size == token->spelling_size;
    state->place = was_found || is_control ? AFTER_CONTROL : IN_TEXT;
    return TSR_OK;
}

tsr_status tsr_tokenizer_decode_next(const tsr_tokenizer *tokenizer, tsr_decode_state *state,
                                     int32_t id, const char **bytes, size_t *size_bytes)
{
    TSR__REQUIRE(tokenizer != NULL && state != NULL && bytes != NULL && size_bytes != NULL,
                 "tokenizer: %s is NULL",
                 tokenizer == NULL ? "the tokenizer"
                 : state == NULL   ? "state"
                 : bytes == NULL   ? "bytes"
                                   : "size_bytes");
    tsr_decode_state own;
    TSR__TRY(TSR__TAKE_PART(tsr_decode_state, state, &own));
    TSR__TRY(decode_next(tokenizer, &own, id, bytes, size_bytes));
    tsr__struct_write(sizeof own, &own, state);
    return TSR_OK;
}

tsr_status tsr_tokenizer_decode(const tsr_tokenizer *tokenizer, const int32_t *ids, uint64_t count,
                                tsr_decode_control control, size_t capacity_bytes, char *text,
                                size_t *size_bytes)
{
    TSR__REQUIRE(tokenizer != NULL && size_bytes != NULL, "tokenizer: %s is NULL",
                 tokenizer == NULL ? "the tokenizer" : "size_bytes");
    TSR__REQUIRE(ids != NULL || count == 0, "tokenizer: ids is NULL, but there are %" PRIu64,
                 count);
    size_t needed = 0;
    for (int writes = 0; writes <= (text != NULL); writes++) {
        tsr_decode_state state = {.struct_size = sizeof state, .control = control};
        needed = 0;
        for (uint64_t i = 0; i < count; i++) {
            const char *bytes = NULL;
            size_t size = 0;
            TSR__TRY(decode_next(tokenizer, &state, ids[i], &bytes, &size));
            TSR__REQUIRE(size <= SIZE_MAX / 2 - needed,
                         "tokenizer: the text of %" PRIu64 " ids is too long", count);
            if (writes && size > 0)
                memcpy(text + needed, bytes, size);
            needed += size;
        }
        TSR__REQUIRE(text == NULL || needed <= capacity_bytes,
                     "tokenizer: the text has %zu bytes; there is room for %zu", needed,
                     capacity_bytes);
    }
    *size_bytes = needed;
    return TSR_OK;
}
