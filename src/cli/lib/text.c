#include "cli/lib/text.h"

#include <string.h>

int cli_character(const char *text, uint32_t *code)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    int size = at[0] < 0x80           ? 1
               : (at[0] >> 5) == 0x06 ? 2
               : (at[0] >> 4) == 0x0e ? 3
               : (at[0] >> 3) == 0x1e ? 4
                                      : 0;
    if (size == 0)
        return 0;
    *code = size == 1 ? at[0] : at[0] & (0xffu >> (size + 1));
    for (int i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) /* this also detects the end of the string */
            return 0;
        *code = *code << 6 | (at[i] & 0x3fu);
    }
    return *code >= lowest[size] ? size : 0;
}

bool cli_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

char *cli_text_mend(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        uint32_t code = 0;
        int size = cli_character(from, &code);
        if (size == 0 || cli_is_control(code)) {
            *to++ = '?';
        } else {
            memmove(to, from, (size_t)size);
            to += size;
        }
        from += size > 0 ? size : 1;
    }
    *to = '\0';
    return text;
}
