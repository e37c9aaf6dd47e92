/* Text from elsewhere, on its way to a terminal: control characters would move the cursor, change
 * what stands there, or make lines that look like ours. */
#ifndef TSR_CLI_TEXT_H
#define TSR_CLI_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* The bytes of the well-formed UTF-8 character that starts here; 0: there is none. */
int cli_character(const char *text, uint32_t *code);

/* Those of ASCII, newlines and tabs among them, and the second set, U+0080 to U+009F. */
bool cli_is_control(uint32_t code);

/* Each of them becomes a question mark, in place. Returns the text. */
char *cli_text_mend(char *text);

#endif
