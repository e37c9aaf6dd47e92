/* A text as tokens. The vocabulary is its distinct characters, in the order of their Unicode
 * numbers. The first nine tenths are for training; the rest is held out. */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gpt_text {
    int32_t *tokens; /* [count] */
    int64_t count;
    int64_t train;        /* tokens 0 … train − 1 are trained on */
    uint32_t *characters; /* [vocabulary]: Unicode numbers, ascending */
    int vocabulary;
} gpt_text;

/* Reads a UTF-8 file. Each of its two parts must have more than `block` characters. On failure
 * returns false, writes a sentence to `error`, and leaves `out` unchanged. */
bool text_read(const char *path, int block, gpt_text *out, char *error, size_t error_size);
void text_free(gpt_text *text);

/* Gives the tokens of a string in memory of malloc. Fails for invalid UTF-8, for a character that
 * the vocabulary lacks, and for an empty string. */
bool text_encode(const gpt_text *text, const char *string, int32_t **tokens, int64_t *count,
                 char *error, size_t error_size);
void text_print(const gpt_text *text, int32_t token, FILE *file);

/* Writes the vocabulary as a tokenizer.json, in the folder of the file `model`. */
bool text_write_tokenizer(const gpt_text *text, const char *model, char *error, size_t error_size);

#endif
