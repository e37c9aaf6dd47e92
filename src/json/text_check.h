/* Checks text that comes from files before it is used, and shortens it for error texts. */
#ifndef TSR_JSON_TEXT_CHECK_H
#define TSR_JSON_TEXT_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* The maximum length of a name in bytes. */
#define TSR__MAX_NAME 4096

/* Returns what is wrong with a name: "is empty", "is too long", "is not UTF-8" or "has a control
 * character". Returns NULL if the name has no problem. A name without a problem can be printed to a
 * terminal unchanged. In JSON, only its quotes and backslashes must be escaped. */
const char *tsr__name_problem(const char *text, size_t length);

/* Returns "is not UTF-8" if the text is not valid UTF-8, and NULL if it is. The text may have any
 * length and any characters. */
const char *tsr__text_problem(const char *text, size_t length);

/* Copies the name to `text`, for use in an error text. A name of more than TSR__NAME_SHORT - 1
 * bytes is cut and ends in an ellipsis. Returns `text`. */
#define TSR__NAME_SHORT 160
char *tsr__name_short(const char *name, char text[TSR__NAME_SHORT]);

/* What an error text is about: the tensor, parameter or key of a file that is being read. Error
 * texts give the subject before the reason, for example "tensor 'a': ". The subject is empty if an
 * error concerns the file as a whole. */
typedef struct tsr__subject {
    char text[TSR__NAME_SHORT + 32];
} tsr__subject;

/* Sets the subject to "what 'name': ". If the name is NULL or has a problem, the subject contains
 * the number instead, for example "parameter 3: ". */
void tsr__subject_set(tsr__subject *subject, const char *what, const char *name, uint64_t number);
static inline void tsr__subject_clear(tsr__subject *subject)
{
    subject->text[0] = '\0';
}

#endif
