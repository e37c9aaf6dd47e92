/* Helpers of the tests of grammars. */
#ifndef TESTS_GRAMMAR_FOLLOW_H
#define TESTS_GRAMMAR_FOLLOW_H

#include <string.h>

#include "support/check_main.h"
#include "tessera/grammar.h"

/* How a text stands to a grammar. */
typedef enum follow_result {
    FOLLOW_REFUSED, /* some byte is not allowed */
    FOLLOW_BEGINS,  /* the text may go on, but not end */
    FOLLOW_COMPLETE /* the text may end */
} follow_result;

static inline tsr_grammar *grammar_of(const tsr_tokenizer *tokenizer, tsr_grammar_kind kind,
                                      const char *text)
{
    tsr_grammar *grammar = NULL;
    const tsr_status status =
        tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .kind = kind, .text = text,
                                              .size_bytes = strlen(text)),
                           &grammar);
    ck_assert_msg(status == TSR_OK, "%s: %s", text, tsr_last_error());
    return grammar;
}

static inline follow_result follow(tsr_grammar *grammar, const char *text, size_t size)
{
    tsr_grammar_state *state = NULL;
    ck_assert_int_eq(tsr_grammar_state_create(grammar, NULL, &state), TSR_OK);
    const bool accepted = tsr_grammar_state_add_text(state, text, size) == TSR_OK;
    const bool ends = tsr_grammar_state_end(state) != TSR_GRAMMAR_INCOMPLETE;
    tsr_grammar_state_destroy(&state);
    return !accepted ? FOLLOW_REFUSED : ends ? FOLLOW_COMPLETE : FOLLOW_BEGINS;
}

/* Checks that a grammar allows the first texts, which end at NULL, and no text after these. */
static inline void follows(const tsr_tokenizer *tokenizer, tsr_grammar_kind kind,
                           const char *grammar_text, const char *const *texts)
{
    tsr_grammar *grammar = grammar_of(tokenizer, kind, grammar_text);
    bool wanted = true;
    for (int nulls = 0; nulls < 2; texts++) {
        if (*texts == NULL) {
            nulls++;
            wanted = false;
            continue;
        }
        const bool complete = follow(grammar, *texts, strlen(*texts)) == FOLLOW_COMPLETE;
        ck_assert_msg(complete == wanted, "%s %s '%s'", grammar_text,
                      wanted ? "does not allow" : "allows", *texts);
    }
    tsr_grammar_destroy(&grammar);
}
#define FOLLOWS(kind, grammar, ...)                                                                \
    follows(tokenizer, kind, grammar, (const char *const[]){__VA_ARGS__, NULL})

static inline void refuses(const tsr_tokenizer *tokenizer, tsr_grammar_kind kind, const char *text,
                           tsr_status wanted, const char *error)
{
    tsr_grammar *grammar = NULL;
    const tsr_status status =
        tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .kind = kind, .text = text,
                                              .size_bytes = strlen(text)),
                           &grammar);
    ck_assert_msg(status != TSR_OK, "%s is accepted", text);
    ck_assert_str_eq(tsr_last_error(), error);
    ck_assert_int_eq(status, wanted);
    ck_assert_ptr_null(grammar);
}

#endif
