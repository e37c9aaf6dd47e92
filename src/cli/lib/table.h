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
    CLI_RIGHT = 1,   /* at the right edge, as numbers are */
    CLI_OPTIONAL = 2 /* left out if the terminal is too narrow, the last such column first */
};

/* Adds a column. All columns must be added before the first cell. */
void cli_table_column(cli_table *table, const char *heading, unsigned how);

/* Adds the next cell, row by row. */
void cli_table_cell(cli_table *table, const char *format, ...) CLI_PRINTF(2, 3);

/* Prints the headings and all complete rows, each line indented by `indent` spaces. If the terminal
 * is too narrow even without the optional columns, prints each row as a block of lines
 * "heading  cell". Output that is no terminal has no limit, unless COLUMNS is set. */
void cli_table_print(const cli_table *table, FILE *out, int indent);

#endif
