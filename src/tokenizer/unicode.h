/* Characters of a text that may contain bytes that are not UTF-8, and their Unicode classes. */
#ifndef TSR_TOKENIZER_UNICODE_H
#define TSR_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code of a byte that is not part of valid UTF-8. Such a byte is a character of its own, and
 * has the class of U+FFFD, TSR__SYMBOL. */
#define TSR__NOT_UTF8 UINT32_MAX

/* Classes of characters, as bits. */
enum {
    TSR__LETTER = 1,      /* \p{L} */
    TSR__NUMBER = 2,      /* \p{N} */
    TSR__SPACE = 4,       /* \s: White_Space */
    TSR__PUNCTUATION = 8, /* \p{P} */
    TSR__SYMBOL = 16,     /* \p{S} */
    TSR__MARK = 32,       /* \p{M} */
    TSR__NEWLINE = 64,    /* \r and \n */
    TSR__UPPER = 128,     /* \p{Lu}, \p{Lt} */
    TSR__LOWER = 256,     /* \p{Ll} */
    TSR__CONNECTOR = 512, /* \p{Pc} */
    TSR__DECIMAL = 1024   /* \p{Nd} */
};

/* Sets *code to the character at the start of text[size], which is not empty. Returns the
 * character's size in bytes. */
size_t tsr__character(const char *text, size_t size, uint32_t *code);

/* Returns the classes of a character, as a sum of the bits above. */
unsigned tsr__classes(uint32_t code);

/* Returns whether the last character of text[size] may be part of a word: a letter, mark, decimal
 * digit or connector such as the underscore. */
bool tsr__word_ends(const char *text, size_t size);
/* Returns whether the first character of text[size] may be part of a word. */
bool tsr__word_starts(const char *text, size_t size);

/* Returns the size of text[size] without the spaces at its end. */
size_t tsr__trim_end(const char *text, size_t size);
/* Returns how many bytes the spaces at the start of text[size] have. */
size_t tsr__trim_start(const char *text, size_t size);

#endif
