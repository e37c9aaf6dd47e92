/* The alphabet of byte-level vocabularies: spellings write each byte as one printable character.
 * Bytes 0x21 to 0x7e, 0xa1 to 0xac and 0xae to 0xff are the characters with the same numbers; the
 * 68 others are U+0100 to U+0143, in their order. Source: GPT-2's encoder. */
#ifndef TSR_TOKENIZER_BYTE_ALPHABET_H
#define TSR_TOKENIZER_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the character of a byte in UTF-8. Returns its size, 1 or 2. */
size_t tsr__alphabet_encode(unsigned char byte, char text[2]);

/* Converts spelling[size] to bytes[*count], at most `size` bytes. Returns false if a character is
 * not in the alphabet. */
bool tsr__alphabet_decode(const char *spelling, size_t size, char *bytes, size_t *count);

#endif
