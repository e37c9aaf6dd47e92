#include "tokenizer/unicode.h"

#include <utf8proc.h>

size_t tsr__character(const char *text, size_t size, uint32_t *code)
{
    const unsigned char *bytes = (const unsigned char *)text;
    utf8proc_int32_t decoded;
    if (bytes[0] < 0x80) {
        *code = bytes[0];
        return 1;
    }
    utf8proc_ssize_t used =
        utf8proc_iterate(bytes, size < 4 ? (utf8proc_ssize_t)size : 4, &decoded);
    if (used <= 0) {
        *code = TSR__NOT_UTF8;
        return 1;
    }
    *code = (uint32_t)decoded;
    return (size_t)used;
}

/* Returns whether a character has Unicode's property White_Space. */
static bool is_space(uint32_t code)
{
    return code == ' ' || (code >= 0x09 && code <= 0x0d) || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

static unsigned category_classes(utf8proc_category_t category)
{
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return TSR__LETTER | TSR__UPPER;
    case UTF8PROC_CATEGORY_LL:
        return TSR__LETTER | TSR__LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return TSR__LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return TSR__MARK;
    case UTF8PROC_CATEGORY_ND:
        return TSR__NUMBER | TSR__DECIMAL;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return TSR__NUMBER;
    case UTF8PROC_CATEGORY_PC:
        return TSR__PUNCTUATION | TSR__CONNECTOR;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return TSR__PUNCTUATION;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return TSR__SYMBOL;
    default: /* separators, control characters, unassigned */
        return 0;
    }
}

unsigned tsr__classes(uint32_t code)
{
    if (code > 0x10ffff) /* a byte that is not UTF-8 */
        return TSR__SYMBOL;
    if (is_space(code))
        return TSR__SPACE | (code == '\r' || code == '\n' ? TSR__NEWLINE : 0);
    return category_classes(utf8proc_category((utf8proc_int32_t)code));
}

/* Sets *code to the last character of text[size]. Returns the character's size in bytes. */
static size_t last_character(const char *text, size_t size, uint32_t *code)
{
    for (size_t back = size < 4 ? size : 4; back > 1; back--)
        if (tsr__character(text + size - back, back, code) == back)
            return back;
    return tsr__character(text + size - 1, 1, code);
}

static bool is_of_word(uint32_t code)
{
    return (tsr__classes(code) & (TSR__LETTER | TSR__MARK | TSR__DECIMAL | TSR__CONNECTOR)) != 0;
}

bool tsr__word_ends(const char *text, size_t size)
{
    uint32_t code;
    return size > 0 && last_character(text, size, &code) > 0 && is_of_word(code);
}

bool tsr__word_starts(const char *text, size_t size)
{
    uint32_t code;
    return size > 0 && tsr__character(text, size, &code) > 0 && is_of_word(code);
}

size_t tsr__trim_end(const char *text, size_t size)
{
    uint32_t code;
    while (size > 0) {
        size_t last = last_character(text, size, &code);
        if (code > 0x10ffff || !is_space(code))
            break;
        size -= last;
    }
    return size;
}

size_t tsr__trim_start(const char *text, size_t size)
{
    uint32_t code;
    size_t offset = 0;
    while (offset < size) {
        size_t next = tsr__character(text + offset, size - offset, &code);
        if (code > 0x10ffff || !is_space(code))
            break;
        offset += next;
    }
    return offset;
}
