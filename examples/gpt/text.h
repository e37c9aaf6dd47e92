/* A text as tokens. The vocabulary is that of a tokenizer or, without one, the text's distinct
 * characters in the order of their Unicode numbers. The first nine tenths are for training; the
 * rest is held out. */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tessera/tessera.h"

typedef struct gpt_text {
    int32_t *tokens; /* [count] */
    int64_t count;
    int64_t train;        /* tokens 0 … train − 1 are trained on */
    uint32_t *characters; /* [vocabulary]: Unicode numbers, ascending; NULL with a tokenizer */
    int vocabulary;
    tsr_tokenizer *tokenizer; /* NULL: tokens are characters */
    const char *tokenizer_path;
    int64_t documents; /* that a separator divides the text into; 0: there is no separator */
} gpt_text;

/* Where a text is, and how it becomes tokens. The strings must remain valid. */
typedef struct gpt_text_params {
    const char *path;      /* a UTF-8 file */
    const char *tokenizer; /* a folder or file; NULL: tokens are characters */
    /* What separates documents, with a tokenizer. Each of them is encoded as a text of its own, and
     * the token that ends a text follows. Empty ones are left out. NULL: one document without an
     * end. */
    const char *separator;
    int block; /* each of the two parts of the text must have more tokens */
} gpt_text_params;

/* On failure returns false, writes a sentence to `error`, and leaves `out` unchanged. */
bool text_read(const gpt_text_params *params, gpt_text *out, char *error, size_t error_size);
void text_free(gpt_text *text);

/* Returns what tokens are: "tokens" or "characters". */
const char *text_unit(const gpt_text *text);

/* Returns a hash of the vocabulary: of the characters, or of all tokens' spellings. */
uint64_t text_hash(const gpt_text *text);

/* Gives the tokens of a string in memory of malloc. NULL: what begins a text, a line break or what
 * the tokenizer adds in front. Fails for an empty string and, without a
 * tokenizer, for invalid UTF-8 and a character that the vocabulary lacks. */
bool text_encode(const gpt_text *text, const char *string, int32_t **tokens, int64_t *count,
                 char *error, size_t error_size);
/* Writes a token's text. `state` begins as {0} and belongs to the text that is being written. */
void text_print(const gpt_text *text, tsr_decode_state *state, int32_t token, FILE *file);
/* Returns whether a text ends with this token. */
bool text_is_end(const gpt_text *text, int32_t token);

/* Writes the vocabulary as a tokenizer.json in the folder of the file `model`, or copies the
 * tokenizer's files to it. */
bool text_write_tokenizer(const gpt_text *text, const char *model, char *error, size_t error_size);
/* Returns false, with a sentence in `error`, if text_write_tokenizer() cannot copy the tokenizer's
 * files, because they are part of a GGUF file. */
bool text_check_tokenizer(const gpt_text *text, char *error, size_t error_size);

#endif
