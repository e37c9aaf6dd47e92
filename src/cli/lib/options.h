/* Parses a command's arguments by a table of options, which also prints the options' part of the
 * command's help.
 *
 *     int64_t size = 64;
 *     const cli_option options[] = {
 *         {"size", "MIB", "how much to copy (default 64)", .integer = &size, .low = 1, .high =
 * 4096},
 *         {"json", NULL, "print JSON", .flag = &json},
 *         {0},
 *     };
 *
 * Arguments may be written --size 64, --size=64 or, for an option with a letter, -s 64. "--" ends
 * the options. */
#ifndef TSR_CLI_LIB_OPTIONS_H
#define TSR_CLI_LIB_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_option {
    const char *name;     /* without the dashes */
    const char *argument; /* the name of its value in the help; NULL for a flag */
    const char *help;

    /* Where the value is stored: exactly one is set. */
    bool *flag;
    const char **text;
    int64_t *integer;
    double *real;
    /* Called for each occurrence. Returns false for an invalid value and writes the end of a
     * sentence that starts with the option into `problem`. */
    bool (*read)(void *user, const char *value, char *problem, size_t problem_size);
    void *user;

    double low, high; /* limits of integers and reals, both inclusive */

    char letter; /* 'o' allows -o as well; 0: none */
} cli_option;

/* Stores the values of options, and other arguments in `words`. Returns CLI_DONE, or CLI_USAGE
 * after printing what is wrong. */
int cli_options_read(const char *command, const cli_option *options, int argc, char **argv,
                     int max_words, const char **words, int *word_count);

void cli_options_help(FILE *out, const cli_option *options);

#endif
