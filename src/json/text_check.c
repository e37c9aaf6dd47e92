/* Checks text that comes from files, and shortens it for error texts. */
#include "json/text_check.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Reads one UTF-8 character and moves *text past it. Returns false if the bytes are not valid
 * UTF-8. */
static bool take_character(const unsigned char **text, const unsigned char *end, uint32_t *out)
{
    static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = *text;
    uint32_t character = *byte;
    int more = *byte >= 0xf0 ? 3 : *byte >= 0xe0 ? 2 : *byte >= 0xc0 ? 1 : 0;
    if ((more == 0 && *byte >= 0x80) || *byte >= 0xf8 || end - byte <= more)
        return false;
    if (more > 0)
        character = *byte & (0x3fu >> more);
    byte++;
    for (int i = 0; i < more; i++, byte++) {
        if ((*byte & 0xc0) != 0x80)
            return false;
        character = character << 6 | (*byte & 0x3f);
    }
    *text = byte;
    *out = character;
    return character >= smallest[more] && character <= 0x10ffff &&
           !(character >= 0xd800 && character < 0xe000);
}

const char *tsr__text_problem(const char *text, size_t length)
{
    const unsigned char *byte = (const unsigned char *)text, *end = byte + length;
    uint32_t character;
    while (byte < end)
        if (!take_character(&byte, end, &character))
            return "is not UTF-8";
    return NULL;
}

const char *tsr__name_problem(const char *text, size_t length)
{
    const unsigned char *byte = (const unsigned char *)text, *end = byte + length;
    uint32_t character;
    if (length == 0)
        return "is empty";
    if (length > TSR__MAX_NAME)
        return "is too long";
    while (byte < end) {
        if (!take_character(&byte, end, &character))
            return "is not UTF-8";
        if (character < 0x20 || (character >= 0x7f && character < 0xa0))
            return "has a control character";
    }
    return NULL;
}

void tsr__subject_set(tsr__subject *subject, const char *what, const char *name, uint64_t number)
{
    char text[TSR__NAME_SHORT];
    if (name != NULL && tsr__name_problem(name, strlen(name)) == NULL)
        snprintf(subject->text, sizeof subject->text, "%s '%s': ", what,
                 tsr__name_short(name, text));
    else
        snprintf(subject->text, sizeof subject->text, "%s %" PRIu64 ": ", what, number);
}

char *tsr__name_short(const char *name, char text[TSR__NAME_SHORT])
{
    size_t length = strlen(name);
    if (length < TSR__NAME_SHORT)
        return memcpy(text, name, length + 1);
    static const char ellipsis[] = "…";
    size_t end = TSR__NAME_SHORT - sizeof ellipsis;
    while (end > 0 && ((unsigned char)name[end] & 0xc0) == 0x80)
        end--;
    memcpy(text, name, end);
    memcpy(text + end, ellipsis, sizeof ellipsis);
    return text;
}
