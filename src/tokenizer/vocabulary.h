/* The tokens of a vocabulary: their spellings in the file, their types, and the bytes that each
 * stands for in a text. */
#ifndef TSR_TOKENIZER_VOCABULARY_H
#define TSR_TOKENIZER_VOCABULARY_H

#include <stdbool.h>

#include "base/error.h"
#include "tessera/tokenizer.h"

/* The types of tokens. The values are those of GGUF. */
typedef enum tsr__token_type {
    TSR__TOKEN_MISSING = 0, /* the id has no token yet */
    TSR__TOKEN_NORMAL = 1,
    TSR__TOKEN_UNKNOWN = 2,
    TSR__TOKEN_CONTROL = 3,
    TSR__TOKEN_USER = 4, /* text that is a token wherever it occurs, before any merging */
    TSR__TOKEN_UNUSED = 5,
    TSR__TOKEN_BYTE = 6 /* <0x00> to <0xFF> */
} tsr__token_type;

/* Concatenated strings. The offset of a string in `data` identifies it. tsr__strings_add puts a
 * zero byte after each string. */
typedef struct tsr__strings {
    char *data;
    size_t size, capacity;
} tsr__strings;
/* Appends text[size] and a zero byte, and sets *start to the offset of the text in strings->data.
 */
tsr_status tsr__strings_add(tsr__strings *strings, const void *text, size_t size,
                            uint64_t *start) TSR_NODISCARD;

typedef struct tsr__token {
    uint64_t spelling, bytes; /* offsets in `strings` of the spelling and of the bytes */
    uint32_t spelling_size, bytes_size;
    tsr__token_type type;
    bool ends; /* generation ends with this token */
} tsr__token;

typedef struct tsr__vocabulary {
    tsr__token *tokens;
    size_t count, capacity;
    tsr__strings strings;
    uint32_t longest; /* the size of the longest spelling */
    /* The hash table of spellings, with open addressing. An entry is id + 1, or 0 if it is free. */
    uint64_t key[2];
    uint32_t *table;
    size_t mask;
} tsr__vocabulary;

void tsr__vocabulary_finish(tsr__vocabulary *vocabulary);

/* Adds a token. Errors: TSR_ERR_INVALID for a spelling that is too long, an id of
 * TSR_TOKENIZER_MAX_SIZE or more, or an id that already has a token. */
tsr_status tsr__vocabulary_add(tsr__vocabulary *vocabulary, uint64_t id, const char *text,
                               size_t size, tsr__token_type type) TSR_NODISCARD;

/* Builds the hash table, after all tokens have been added. Errors: TSR_ERR_INVALID for an empty
 * vocabulary, an id without a token, or two tokens with the same spelling. */
tsr_status tsr__vocabulary_index(tsr__vocabulary *vocabulary) TSR_NODISCARD;

/* Returns the id of the token with this spelling, or -1. */
int32_t tsr__vocabulary_find(const tsr__vocabulary *vocabulary, const char *text, size_t size);

static inline const char *tsr__token_spelling(const tsr__vocabulary *vocabulary, int32_t id)
{
    return vocabulary->strings.data + vocabulary->tokens[id].spelling;
}

/* Writes a spelling to `text` for an error text: quoted, and cut if it is long. Bytes that are not
 * printable become question marks. Returns `text`. */
#define TSR__SPELLING_TEXT 96
char *tsr__spelling_text(const char *spelling, size_t size, char text[TSR__SPELLING_TEXT]);

#endif
