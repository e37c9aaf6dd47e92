/* Reading a subcommand's arguments by a table, which also prints the options' part of its help.
 *
 *     int64_t size = 64;
 *     const cli_option options[] = {
 *         {"size", "MIB", "how much to copy (default 64)", .integer = &size, .low = 1, .high =
 * 4096},
 *         {"json", NULL, "print JSON", .flag = &json},
 *         {0},
 *     };
 *
 * Options are written --size 64 or --size=64; "--" ends them. */
#ifndef TSR_CLI_OPTIONS_H
#define TSR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_option {
    const char *name;     /* without the dashes */
    const char *argument; /* what its value is called in the help; NULL for a flag */
    const char *help;

    /* Where the value goes: exactly one is set. */
    bool *flag;
    const char **text;
    int64_t *integer;
    double *real;
    /* Called for each occurrence. False when the value is no good, the reason having been put into
     * `problem`. */
    bool (*read)(void *user, const char *value, char *problem, size_t problem_size);
    void *user;

    double low, high; /* what integers and reals are limited to, both included */

    char letter; /* 'o' lets -o stand for it; 0: none */
} cli_option;

/* Fills in the options' targets and puts what is not an option into `words`. CLI_DONE, or CLI_USAGE
 * with the reason printed. */
int cli_options_read(const char *command, const cli_option *options, int argc, char **argv,
                     int max_words, const char **words, int *word_count);

void cli_options_help(FILE *out, const cli_option *options);

/* A whole decimal integer within low … high. */
bool cli_read_integer(const char *text, int64_t low, int64_t high, int64_t *out);
/* The same of a finite decimal number: "5", "-.5", "2.5e-1". */
bool cli_read_real(const char *text, double low, double high, double *out);
/* A decimal number that something may follow: returns where it ends, or NULL when there is none.
 * One that is too large is infinite. */
const char *cli_read_decimal(const char *text, double *out);

#endif
