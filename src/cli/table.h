/* A table of text with aligned columns. */
#ifndef TSR_CLI_TABLE_H
#define TSR_CLI_TABLE_H

#include <stdio.h>

#include "cli/command.h"

typedef struct cli_table cli_table;

cli_table *cli_table_create(void);
void cli_table_destroy(cli_table **table);

/* Adds a column: its heading, and whether cells stand at its right edge, as numbers should. Columns
 * come before cells. */
void cli_table_column(cli_table *table, const char *heading, int right);

/* The next cell, row by row. */
void cli_table_cell(cli_table *table, const char *format, ...) CLI_PRINTF(2, 3);

/* Prints headings and full rows, each line starting with `indent` spaces. */
void cli_table_print(const cli_table *table, FILE *out, int indent);

#endif
