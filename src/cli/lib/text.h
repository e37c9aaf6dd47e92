/* UTF-8 text from outside: the names of devices, files and drivers. Control characters in such a
 * text could move the cursor of a terminal, or imitate output of the tool. */
#ifndef TSR_CLI_LIB_TEXT_H
#define TSR_CLI_LIB_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Decodes the UTF-8 character at the start of `text`. Returns its size in bytes, or 0 if it is not
 * well-formed. */
int cli_character(const char *text, uint32_t *code);

/* Returns true for the control characters of ASCII, including newline and tab, and for U+0080 to
 * U+009F. */
bool cli_is_control(uint32_t code);

/* Replaces control characters and malformed bytes by question marks, in place. Returns `text`. */
char *cli_text_mend(char *text);

#endif
