/* Checks text that comes from files before it is used, and shortens it for error texts. */
#ifndef TSR_JSON_TEXT_H
#define TSR_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The maximum length of a name in bytes. */
#define TSR__MAX_NAME 4096

/* Returns what is wrong with a name ("is empty", "is too long", "is not UTF-8", "has a control
 * character"), or NULL. A name without a problem can be written to a terminal unchanged, and to
 * JSON with only quotes and backslashes escaped. */
const char *tsr__name_problem(const char *text, size_t length);

/* Returns "is not UTF-8" or NULL. The text may have any length and any characters. */
const char *tsr__text_problem(const char *text, size_t length);

/* Writes the name to `text` for use in an error text. A name of more than TSR__NAME_SHORT - 1 bytes
 * is cut and ends in an ellipsis. Returns `text`. */
#define TSR__NAME_SHORT 160
char *tsr__name_short(const char *name, char text[TSR__NAME_SHORT]);

/* The part of a file that is being read, which error texts name before the reason: "tensor 'a': ".
 * Empty for the file itself. */
typedef struct tsr__subject {
    char text[TSR__NAME_SHORT + 32];
} tsr__subject;

/* Sets the subject to "what 'name': ". If the name is NULL or has a problem, the subject has the
 * number instead: "parameter 3: ". */
void tsr__subject_set(tsr__subject *subject, const char *what, const char *name, uint64_t number);
static inline void tsr__subject_clear(tsr__subject *subject)
{
    subject->text[0] = '\0';
}

#endif
