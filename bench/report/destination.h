/* Where a command of tessera bench writes its results: the options --output and --json, which mean
 * the same for all commands. */
#ifndef TSR_BENCH_REPORT_DESTINATION_H
#define TSR_BENCH_REPORT_DESTINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum bench_format {
    BENCH_AS_TEXT, /* aligned tables; only on standard output */
    BENCH_AS_MARKDOWN,
    BENCH_AS_CSV,
    BENCH_AS_JSON
} bench_format;

typedef struct bench_destination {
    bench_format format; /* the format of standard output; the initial value is the default */
    const char *path;    /* a file to write as well; NULL: none */
    bool json;           /* --json was given */
    bool chosen;         /* --output named a format */
} bench_destination;

/* The options --output and --json as entries of a command's table of options; they set members of
 * `to`. */
#define BENCH_DESTINATION_OPTIONS(to)                                                              \
    {"json", NULL, "the same as -o json: print JSON with everything, and nothing else",            \
     .flag = &(to).json},                                                                          \
    {                                                                                              \
        "output", "FORMAT|FILE",                                                                   \
            "print text, md, csv or json; or also write a file: as Markdown or CSV if its name "   \
            "ends in .md or .csv, otherwise as JSON. May be given for both",                       \
            .read = bench_destination_read, .user = &(to), .letter = 'o'                           \
    }

bool bench_destination_read(void *user, const char *text, char *problem, size_t size);

/* Checks the options before a long measurement: whether they contradict each other, and whether the
 * file can be written. Must be called once, before bench_destination_write. Returns an exit code,
 * after an error message unless it is CLI_DONE. */
int bench_destination_check(const char *command, bench_destination *to);

/* Calls `write` for the file, if there is one, and then for standard output, even if the file could
 * not be written. Returns an exit code. */
typedef void bench_write(void *user, bench_format format, FILE *out);
int bench_destination_write(const char *command, const bench_destination *to, bench_write *write,
                            void *user);

#endif
