#include "tokenizer/byte_alphabet.h"

#include <stdint.h>

#include "tokenizer/unicode.h"

static bool stands_for_itself(unsigned code)
{
    return (code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xff && code != 0xad);
}

/* Returns the character of a byte. Bytes 0x00 to 0x20 become U+0100 onwards, 0x7f to 0xa0 become
 * U+0121 onwards, and 0xad becomes U+0143. */
static unsigned character_of(unsigned byte)
{
    if (stands_for_itself(byte))
        return byte;
    return byte <= 0x20 ? 0x100 + byte : byte == 0xad ? 0x143 : 0x121 + byte - 0x7f;
}

static int byte_of(uint32_t code)
{
    if (code < 0x100)
        return stands_for_itself(code) ? (int)code : -1;
    if (code <= 0x120)
        return (int)code - 0x100;
    if (code <= 0x142)
        return (int)code - 0x121 + 0x7f;
    return code == 0x143 ? 0xad : -1;
}

size_t tsr__alphabet_encode(unsigned char byte, char text[2])
{
    unsigned code = character_of(byte);
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    text[0] = (char)(0xc0 | code >> 6);
    text[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

bool tsr__alphabet_decode(const char *spelling, size_t size, char *bytes, size_t *count)
{
    size_t length = 0;
    for (size_t offset = 0; offset < size;) {
        uint32_t code;
        offset += tsr__character(spelling + offset, size - offset, &code);
        int byte = byte_of(code);
        if (byte < 0)
            return false;
        bytes[length++] = (char)byte;
    }
    *count = length;
    return true;
}
