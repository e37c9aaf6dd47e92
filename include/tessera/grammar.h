/* Grammars: which tokens may follow, so that a generated text has a given form. A grammar is
 * compiled once to a pushdown automaton over bytes; a state of it follows one text.
 *
 *     tsr_grammar *grammar = NULL;
 *     tsr_grammar_state *state = NULL;
 *     tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = text,
 *                                           .size_bytes = strlen(text)),
 *                        &grammar);
 *     tsr_grammar_state_create(grammar, NULL, &state);
 *     tsr_generator_add(generator, tsr_sequence_params(…, .grammar = state), &sequence);
 *
 * A program that chooses tokens by itself calls tsr_grammar_state_mask before each choice, and
 * tsr_grammar_state_add after it.
 *
 * Needs no device. Threads: one thread at a time for a grammar and all of its states. */
#ifndef TESSERA_GRAMMAR_H
#define TESSERA_GRAMMAR_H

#include "tessera/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_GRAMMAR_MAX_TEXT 4194304   /* bytes of a grammar's text */
#define TSR_GRAMMAR_MAX_REPEAT 65536   /* the numbers of {m,n} */
#define TSR_GRAMMAR_MAX_SIZE 1048576   /* states of the automaton, of which each byte needs one */
#define TSR_GRAMMAR_MAX_NESTING 128    /* groups inside groups */
#define TSR_GRAMMAR_MAX_DEPTH 4096     /* rules inside rules, in a text */
#define TSR_GRAMMAR_MAX_READINGS 16384 /* ways in which a text can have been read so far */

typedef enum tsr_grammar_kind {
    /* GBNF, as llama.cpp reads it. A rule is `name ::= …`, the first one to be read is `root`.
     * "literals" and classes [a-z0-9_], [^"\\] have the escapes \n \r \t \" \\ \[ \] \xHH \uHHHH
     * \UHHHHHHHH; `.` is any character; groups are in parentheses; `|` separates alternatives;
     * * + ? {m} {m,} {m,n} repeat; # begins a comment. A rule ends with its line, unless a
     * parenthesis is open or the next line begins with `|`. Characters are those of UTF-8.
     * `<token>` is the token of this spelling, and `<[5]>` the one with an id: control tokens and
     * added ones as themselves, others as their text; `!<token>` is any character of a text that
     * this token ends. `%json` and a JSON schema are a value that it allows. */
    TSR_GRAMMAR_GBNF = 0,
    /* A JSON schema: a text is one value that it allows, with at most a space, or one or two line
     * breaks with up to 20 spaces or tabs, between its parts. docs/grammars.md lists what a schema
     * may contain; everything else is refused. */
    TSR_GRAMMAR_JSON_SCHEMA = 1
} tsr_grammar_kind;

typedef struct tsr_grammar tsr_grammar;

typedef struct tsr_grammar_params {
    size_t struct_size;
    const tsr_tokenizer *tokenizer; /* must outlive the grammar */
    const char *text;               /* [size_bytes], in UTF-8 */
    size_t size_bytes;
    tsr_grammar_kind kind;
    /* GBNF: the rule that a text is; NULL: "root". So a program can let something else come before
     * a user's grammar: it appends a rule, such as `reply ::= (<think> !</think>* </think>)? root`
     */
    const char *root;
    /* For so long, in nanoseconds and beside compiling, masks are found that texts will need, so
     * that fewer tokens of the first texts wait for theirs. 0: none; it changes no mask */
    uint64_t ahead_ns;
} tsr_grammar_params;
#define tsr_grammar_params(...)                                                                    \
    (&(tsr_grammar_params){.struct_size = sizeof(tsr_grammar_params), __VA_ARGS__})

/* Compiles a grammar. Errors: TSR_ERR_INVALID naming line and column, or the place in the schema:
 * for wrong syntax, a rule that is missing, defined twice or begins with itself (left recursion),
 * and for what exceeds one of the limits above; TSR_ERR_UNSUPPORTED for a part of a schema that is
 * not supported, naming it; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_grammar_create(const tsr_grammar_params *params,
                                                    tsr_grammar **out);
/* Destroys a grammar, which must have no states any more, and sets the pointer to NULL. NULL is
 * allowed. */
TSR_API void tsr_grammar_destroy(tsr_grammar **grammar);
/* Returns the memory that a grammar uses at present; 0 for NULL. It grows with the masks that are
 * kept, up to about 64 MiB, of which .ahead_ns finds at most 8. */
TSR_API uint64_t tsr_grammar_bytes(const tsr_grammar *grammar);

/* How far a text has been read. */
typedef struct tsr_grammar_state tsr_grammar_state;

/* Creates a state: a copy of `from`, or the start of a text if `from` is NULL. Errors:
 * TSR_ERR_INVALID if `from` is a state of another grammar; TSR_ERR_NO_MEMORY; TSR_ERR_OVERFLOW as
 * below. */
TSR_API TSR_NODISCARD tsr_status tsr_grammar_state_create(tsr_grammar *grammar,
                                                          const tsr_grammar_state *from,
                                                          tsr_grammar_state **out);
/* Destroys a state and sets the pointer to NULL. NULL is allowed. */
TSR_API void tsr_grammar_state_destroy(tsr_grammar_state **state);

/* Read a token, or size_bytes bytes, which need not be whole characters. A token that the grammar
 * allows as itself is not read as text. Errors: TSR_ERR_INVALID if the grammar does not allow them
 * here, and control tokens only as themselves; for an id out of range. TSR_ERR_OVERFLOW if there
 * would be more than TSR_GRAMMAR_MAX_READINGS ways to read the text; TSR_ERR_NO_MEMORY. After an
 * error the state has not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_grammar_state_add(tsr_grammar_state *state, int32_t token);
TSR_API TSR_NODISCARD tsr_status tsr_grammar_state_add_text(tsr_grammar_state *state,
                                                            const void *text, size_t size_bytes);

typedef enum tsr_grammar_end {
    TSR_GRAMMAR_INCOMPLETE = 0, /* the text must go on */
    TSR_GRAMMAR_MAY_END = 1,    /* it may end here, or go on */
    TSR_GRAMMAR_MUST_END = 2    /* nothing can follow */
} tsr_grammar_end;
/* Returns whether the text may end. TSR_GRAMMAR_INCOMPLETE for NULL. */
TSR_API tsr_grammar_end tsr_grammar_state_end(const tsr_grammar_state *state);

/* Sets the bits of the tokens that may follow, and clears the others of the 32 · `count` bits:
 * token i is bit i % 32 of mask[i / 32]. Tokens at which generation ends (tsr_tokenizer_is_end) may
 * follow where the text may end; other control tokens only where the grammar has them, and other
 * tokens without bytes or with a byte that UTF-8 never has do not follow. Where rules
 * are TSR_GRAMMAR_MAX_DEPTH deep, tokens that need a deeper one are left out.
 *
 * Masks are kept, so that most calls only copy one. Errors: TSR_ERR_INVALID if the mask has fewer
 * bits than the tokenizer has tokens; TSR_ERR_OVERFLOW if the grammar is so ambiguous that a mask
 * would take more than about 0.1 seconds; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_grammar_state_mask(tsr_grammar_state *state, int64_t count,
                                                        uint32_t *mask);

#ifdef __cplusplus
}
#endif

#endif
