/* A table of text with aligned columns. */
#ifndef TSR_CLI_LIB_TABLE_H
#define TSR_CLI_LIB_TABLE_H

#include <stdio.h>

#include "cli/lib/say.h"

typedef struct cli_table cli_table;

cli_table *cli_table_create(void);
void cli_table_destroy(cli_table **table);

/* How a column is printed. */
enum {
    CLI_LEFT = 0,
    CLI_RIGHT = 1, /* aligned to the right, for numbers */
    /* Left out if the terminal is too narrow. The last optional column is left out first. */
    CLI_OPTIONAL = 2
};

/* Adds a column. All columns must be added before the first cell. */
void cli_table_column(cli_table *table, const char *heading, unsigned how);

/* Adds the next cell. Cells are added row by row. */
void cli_table_cell(cli_table *table, const char *format, ...) CLI_PRINTF(2, 3);

/* Prints the headings and all complete rows. Each line begins with `indent` spaces. If the terminal
 * is too narrow even without the optional columns, prints each row as a block of lines "heading
 * cell". If the output is not a terminal, the width has no limit, unless COLUMNS is set. */
void cli_table_print(const cli_table *table, FILE *out, int indent);

/* Prints all columns as a table in Markdown, except those whose cells are all empty. */
void cli_table_markdown(const cli_table *table, FILE *out);
/* Prints all columns as CSV, as in RFC 4180. */
void cli_table_csv(const cli_table *table, FILE *out);

#endif
