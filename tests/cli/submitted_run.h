/* Invented runs that pass the self-check of `tessera bench --submit`. */
#ifndef TESTS_CLI_SUBMITTED_RUN_H
#define TESTS_CLI_SUBMITTED_RUN_H

#include <jansson.h>

/* Returns made_run() with statistics that follow from their samples, measured on a quiet
 * machine. The ceiling of the copy, result 1, is memcpy of the host, result 4. */
json_t *submitted_source(void);
/* Returns submitted_source() with a second device of the same name, on which only the copy was
 * measured. */
json_t *submitted_source_on_twins(void);
/* Returns the part of submitted_source() that is published: its first five results. */
json_t *submitted_run(void);

/* Returns the value at a path such as "results/0/value"; "" is the document. */
json_t *submitted_at(json_t *document, const char *place);
/* Sets a member of the object at this path, and takes the reference to the value. */
void submitted_set(json_t *document, const char *place, const char *name, json_t *value);

#endif
