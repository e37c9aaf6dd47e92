/* The members of a submission, as docs/results/README.md lists them. One table decides both what
 * is copied from a run and what a file may and must contain. */
#ifndef TSR_BENCH_SUBMIT_MEMBERS_H
#define TSR_BENCH_SUBMIT_MEMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns a copy of a run's document in which all objects have only the members that the table
 * lists. */
json_t *bench_members_select(const json_t *run);

/* Checks that the document has all members of the table, with their types, and no other. Otherwise
 * writes a sentence that names the member: `results[7].value: there is no "median"`. */
bool bench_members_check(const json_t *submission, char *problem, size_t size);

#endif
