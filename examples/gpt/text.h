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
} gpt_text;

/* Reads a UTF-8 file and, unless it is NULL, the tokenizer of a folder or file. Each of the two
 * parts of the text must have more than `block` tokens. On failure returns false, writes a sentence
 * to `error`, and leaves `out` unchanged. tokenizer_path must remain valid. */
bool text_read(const char *path, const char *tokenizer_path, int block, gpt_text *out, char *error,
               size_t error_size);
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
