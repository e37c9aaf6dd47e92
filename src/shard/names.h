/* Names that come from files: checked before anything is done with them. */
#ifndef TSR_SHARD_NAMES_H
#define TSR_SHARD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* What is wrong with a name, or NULL: "is empty", "is too long", "is not UTF-8", "has a control
 * character". After that it can be written to a terminal, and to JSON with only quotes and
 * backslashes escaped. */
const char *tsr__name_problem(const char *text, size_t length);

/* For error texts: the name, or its start and an ellipsis. */
#define TSR__NAME_SHORT 160
char *tsr__name_short(const char *name, char text[TSR__NAME_SHORT]);

#endif
