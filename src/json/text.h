/* Text that comes from files: it is checked before anything else is done with it, and shortened for
 * error texts. */
#ifndef TSR_JSON_TEXT_H
#define TSR_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes a name may have. */
#define TSR__MAX_NAME 4096

/* What is wrong with a name, or NULL: "is empty", "is too long", "is not UTF-8", "has a control
 * character". A name without a problem can be written to a terminal as it is, and to JSON with only
 * quotes and backslashes escaped. */
const char *tsr__name_problem(const char *text, size_t length);

/* "is not UTF-8", or NULL, for a text of any length and with any characters. */
const char *tsr__text_problem(const char *text, size_t length);

/* The name for an error text: cut to TSR__NAME_SHORT - 1 bytes, with an ellipsis at the end. */
#define TSR__NAME_SHORT 160
char *tsr__name_short(const char *name, char text[TSR__NAME_SHORT]);

/* The part of a file that is being read, as errors name it before the reason: "tensor 'a': ". Empty
 * for the file itself. */
typedef struct tsr__subject {
    char text[TSR__NAME_SHORT + 32];
} tsr__subject;

/* Without a name that can be printed (NULL, or one with a problem) the subject is numbered:
 * "parameter 3: ". */
void tsr__subject_set(tsr__subject *subject, const char *what, const char *name, uint64_t number);
static inline void tsr__subject_clear(tsr__subject *subject)
{
    subject->text[0] = '\0';
}

#endif
