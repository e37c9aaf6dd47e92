/* Parses a command's arguments by a table of options, which also prints the options' part of the
 * command's help.
 *
 *     int64_t size = 64;
 *     const cli_option options[] = {
 *         {"size", "MIB", "how much to copy (default 64)",
 *          .integer = &size, .low = 1, .high = 4096},
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
    const char *argument; /* the name that the help gives to the option's value; NULL for a flag */
    const char *help;

    /* Where to store the value. Exactly one of these pointers must be set. */
    bool *flag;
    const char **text;
    int64_t *integer;
    double *real;
    /* This function is called each time the option occurs. If the value is invalid, it returns
     * false and writes the end of an error text into `problem`. The beginning of that text is the
     * option's name. */
    bool (*read)(void *user, const char *value, char *problem, size_t problem_size);
    void *user;

    double low, high; /* limits of integers and reals; both limits are allowed values */

    char letter; /* for example 'o', if the option may also be written as -o; 0: none */
} cli_option;

/* Stores the values of options, and stores the other arguments in `words`. Returns CLI_DONE. If the
 * arguments are wrong, prints what is wrong, with the nearest name of an option in place of one
 * that does not exist, and returns CLI_USAGE. */
int cli_options_read(const char *command, const cli_option *options, int argc, char **argv,
                     int max_words, const char **words, int *word_count);

void cli_options_help(FILE *out, const cli_option *options);

#endif
