/* Names that come from files: checked before anything is done with them. */
#ifndef TSR_SHARD_FORMATS_NAMES_H
#define TSR_SHARD_FORMATS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is wrong with a name, or NULL: "is empty", "is too long", "is not UTF-8", "has a control
 * character". After that it can be written to a terminal, and to JSON with only quotes and
 * backslashes escaped. */
const char *tsr__name_problem(const char *text, size_t length);
/* The same for a text of any length and with any characters: "is not UTF-8", or NULL. */
const char *tsr__text_problem(const char *text, size_t length);

/* For error texts: the name, or its start and an ellipsis. */
#define TSR__NAME_SHORT 160
char *tsr__name_short(const char *name, char text[TSR__NAME_SHORT]);

/* What errors are about while a part of a file is read: "tensor 'a': ", to stand before the reason.
 * Empty: the file. */
typedef struct tsr__subject {
    char text[TSR__NAME_SHORT + 32];
} tsr__subject;

/* A name that cannot be printed, or NULL, is told by its number: "parameter 3: ". */
void tsr__subject_set(tsr__subject *subject, const char *what, const char *name, uint64_t number);
static inline void tsr__subject_clear(tsr__subject *subject)
{
    subject->text[0] = '\0';
}

#endif
