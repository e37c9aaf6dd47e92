/* Running the tool and looking at what it says. */
#ifndef TESTS_CLI_TOOL_H
#define TESTS_CLI_TOOL_H

#include <jansson.h>

typedef struct tool_result {
    int exit_code; /* -1: a signal ended it */
    char *out, *err;
    size_t out_size; /* of what may hold zero bytes */
} tool_result;

/* `arguments` as on a command line, separated by single spaces. The test fails when the tool cannot
 * be run. */
tool_result tool_run(const char *arguments);
/* With standard output at the end of that file, all of which is in `out`. */
tool_result tool_run_appending(const char *arguments, const char *path);
void tool_result_free(tool_result *result);

/* Runs the tool, which must exit with 0 and print this, nothing to standard error; or with 2 and
 * nothing but this sentence there. */
void tool_prints(const char *arguments, const char *output);
void tool_refuses(const char *arguments, const char *sentence);

/* How often the words are there. */
int tool_count(const char *text, const char *words);

/* Runs the tool, which must exit with 0 and print one JSON document of this schema, version 1, and
 * nothing else. */
json_t *tool_json(const char *arguments, const char *schema);
json_t *tool_json_version(const char *arguments, const char *schema, int version);

/* A member that must be there. */
const json_t *tool_member(const json_t *object, const char *name);
double tool_number(const json_t *object, const char *name);
const char *tool_text(const json_t *object, const char *name);

#endif
