/* Invented runs that pass the self-check of `tessera bench --submit`. */
#ifndef TESTS_CLI_SUBMITTED_RUN_H
#define TESTS_CLI_SUBMITTED_RUN_H

#include <jansson.h>

/* made_run() with figures that follow from their samples, on a quiet machine. The copy, result 1,
 * has memcpy of the host as its ceiling, result 4. */
json_t *submitted_source(void);
/* The same with a second device of the same name, on which only the copy was measured. */
json_t *submitted_source_on_twins(void);
/* What is published of submitted_source(); its results are the first five of it. */
json_t *submitted_run(void);

/* Returns the value at a place such as "results/0/value"; "" is the document. */
json_t *submitted_at(json_t *document, const char *place);
/* Sets a member of the object at this place, and takes the value. */
void submitted_set(json_t *document, const char *place, const char *name, json_t *value);

#endif
