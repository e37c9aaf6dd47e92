/* Finds what a submission must not contain: traces of the machine and of its user. */
#ifndef TSR_BENCH_SUBMIT_TRACES_H
#define TSR_BENCH_SUBMIT_TRACES_H

#include <jansson.h>
#include <stdbool.h>

/* Returns the first text of the document that contains an absolute path, such as "/home/ada" or
 * "C:\Users"; NULL if there is none. */
const char *bench_find_path(const json_t *document);

/* Returns the first text in which `name` stands as a whole word; NULL if there is none. Searches
 * the texts that come from the system: those of devices, of the processor, and of notes. */
const char *bench_find_name(const json_t *submission, const char *name);

/* Writes the names of this machine (without its domain) and of the user; "" if there is none. */
#define BENCH_TRACE 128
void bench_own_names(char machine[BENCH_TRACE], char user[BENCH_TRACE]);

/* Returns whether the documents differ, and writes where, for example "devices[0].uuid". */
#define BENCH_PLACE 160
bool bench_find_difference(const json_t *first, const json_t *other, char place[BENCH_PLACE]);

#endif
