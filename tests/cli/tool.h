/* Runs the tool and examines its output. */
#ifndef TESTS_CLI_TOOL_H
#define TESTS_CLI_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct tool_result {
    int exit_code;   /* -1: a signal ended it */
    char *out, *err; /* `err` is without lines of progress, which depend on the machine's speed */
    size_t out_size; /* `out` may contain zero bytes */
} tool_result;

/* Runs the tool in a UTF-8 locale. `arguments` are separated by single spaces. The test fails if
 * the tool cannot be run. */
tool_result tool_run(const char *arguments);
/* As tool_run, with these values of LC_ALL and COLUMNS. */
tool_result tool_run_in(const char *arguments, const char *locale, const char *columns);
/* As tool_run, but in the present locale, and with standard output to `out`, which is closed at the
 * end. */
tool_result tool_run_into(const char *arguments, FILE *out);
/* As tool_run, but in the present locale, and appends standard output to this file. `out` has the
 * whole contents of the file. */
tool_result tool_run_appending(const char *arguments, const char *path);
/* Runs the tool, alone or as two ranks, with `input` as its standard input. Once it has printed
 * some tokens, interrupts it as a terminal does, with all processes of its group. When the tool has
 * then ended the line, sends it `afterwards`. Both texts may be NULL. `err` stays empty. */
tool_result tool_interrupt(const char *arguments, bool launched, const char *input,
                           const char *afterwards);
/* These bytes become the standard input of the tools that the test runs from now on; they can be
 * read once. The test must have a process of its own. */
void tool_feed(const void *bytes, size_t size);
void tool_result_free(tool_result *result);

/* Asserts that the tool exits with 0 and prints `output`, and nothing on standard error. */
void tool_prints(const char *arguments, const char *output);
/* Asserts that the tool exits with 2 and prints only `sentence`, on standard error. */
void tool_refuses(const char *arguments, const char *sentence);
/* Asserts that the tool exits with 1 and prints only `sentence`, on standard error. */
void tool_reports(const char *arguments, const char *sentence);
/* Asserts that the tool exits with 1 and prints only to standard error, with a text that contains
 * `words`. */
void tool_fails(const char *arguments, const char *words);

/* Returns the number of occurrences of `words`. */
int tool_count(const char *text, const char *words);

/* Asserts that the tool exits with 0 and prints one JSON document of this schema, and nothing else.
 * The version of the schema is 1, or `version`. */
json_t *tool_json(const char *arguments, const char *schema);
json_t *tool_json_version(const char *arguments, const char *schema, int version);

/* Returns a member, which must exist. */
const json_t *tool_member(const json_t *object, const char *name);
double tool_number(const json_t *object, const char *name);
const char *tool_text(const json_t *object, const char *name);

#endif
