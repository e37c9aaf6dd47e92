#include "cli/lib/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/terminal.h"

#define COLUMNS 24
#define GAP 2

struct cli_table {
    int columns;
    unsigned how[COLUMNS];
    int count;    /* number of texts */
    char **texts; /* the headings, and then the cells of one row after the other */
};

cli_table *cli_table_create(void)
{
    return cli_alloc(1, sizeof(cli_table));
}

void cli_table_destroy(cli_table **table)
{
    if (*table == NULL)
        return;
    for (int i = 0; i < (*table)->count; i++)
        free((*table)->texts[i]);
    free((*table)->texts);
    free(*table);
    *table = NULL;
}

void cli_table_cell(cli_table *table, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_format_list(format, arguments);
    va_end(arguments);
    table->texts = cli_resize(table->texts, (size_t)table->count + 1, sizeof *table->texts);
    table->texts[table->count++] = cli_localized(text);
    free(text);
}

void cli_table_column(cli_table *table, const char *heading, unsigned how)
{
    if (table->columns == COLUMNS)
        return;
    table->how[table->columns++] = how;
    cli_table_cell(table, "%s", heading);
}

/* How a table is printed in the available width. */
typedef struct shape {
    int rows; /* number of rows, including the headings */
    int widths[COLUMNS];
    bool shown[COLUMNS];
} shape;

static int total_width(const cli_table *table, const shape *all)
{
    int width = -GAP;
    for (int i = 0; i < table->columns; i++)
        width += all->shown[i] ? all->widths[i] + GAP : 0;
    return width;
}

/* Removes optional columns until the table fits. Returns false if it does not fit even without
 * them. */
static bool fit(const cli_table *table, shape *all, int columns)
{
    for (int i = 0; i < all->rows * table->columns; i++) {
        int *width = &all->widths[i % table->columns], needed = cli_text_width(table->texts[i]);
        *width = needed > *width ? needed : *width;
    }
    for (int i = 0; i < table->columns; i++)
        all->shown[i] = true;
    for (int i = table->columns - 1; i >= 0 && total_width(table, all) > columns; i--)
        all->shown[i] = !(table->how[i] & CLI_OPTIONAL);
    return total_width(table, all) <= columns;
}

static void print_row(const cli_table *table, const shape *all, FILE *out, int indent, int row)
{
    /* number of spaces before the next text; spaces at the end of a line are not printed */
    int owed = indent;
    for (int column = 0; column < table->columns; column++) {
        if (!all->shown[column])
            continue;
        const char *text = table->texts[row * table->columns + column];
        bool right = table->how[column] & CLI_RIGHT;
        int padding = all->widths[column] - cli_text_width(text);
        if (right)
            owed += padding;
        if (text[0] != '\0') {
            fprintf(out, "%*s", owed, "");
            fputs(text, out);
            owed = 0;
        }
        owed += GAP + (right ? 0 : padding);
    }
    fputc('\n', out);
}

/* Prints the names of the columns that were removed. */
static void print_dropped(const cli_table *table, const shape *all, FILE *out, int indent)
{
    char line[512] = "";
    size_t used = 0;
    for (int i = 0; i < table->columns; i++)
        if (!all->shown[i] && table->texts[i][0] != '\0' && used < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", used > 0 ? ", " : "",
                                     table->texts[i]);
    if (used == 0)
        return;
    char text[640];
    snprintf(text, sizeof text, "%*s(no room for: %s)\n", indent, "", line);
    cli_wrap(out, text);
}

/* Prints each row as a block of lines. */
static void print_blocks(const cli_table *table, FILE *out, int indent)
{
    int heading = 0;
    for (int i = 0; i < table->columns; i++) {
        int width = cli_text_width(table->texts[i]);
        heading = width > heading ? width : heading;
    }
    for (int i = table->columns; i + table->columns <= table->count; i += table->columns) {
        if (i > table->columns)
            fputc('\n', out);
        for (int column = 0; column < table->columns; column++) {
            const char *name = table->texts[column], *text = table->texts[i + column];
            if (text[0] == '\0')
                continue;
            fprintf(out, "%*s%s%*s%s\n", indent, "", name, heading - cli_text_width(name) + GAP, "",
                    text);
        }
    }
}

void cli_table_print(const cli_table *table, FILE *out, int indent)
{
    int columns = cli_columns(out);
    if (table->columns == 0)
        return;
    shape all = {.rows = table->count / table->columns};
    if (!fit(table, &all, columns > 0 ? columns - indent : 1 << 30)) {
        print_blocks(table, out, indent);
        return;
    }
    for (int row = 0; row < all.rows; row++)
        print_row(table, &all, out, indent, row);
    print_dropped(table, &all, out, indent);
}

static bool is_empty(const cli_table *table, int column)
{
    for (int i = table->columns + column; i < table->count; i += table->columns)
        if (table->texts[i][0] != '\0')
            return false;
    return true;
}

/* Returns the width of a cell in Markdown. Vertical bars are escaped, because they would end the
 * cell. */
static int markdown_width(const char *text)
{
    int width = cli_text_width(text);
    for (; *text != '\0'; text++)
        width += *text == '|';
    return width;
}

static void markdown_cell(FILE *out, const char *text, int width, bool right)
{
    const int padding = width - markdown_width(text);
    fprintf(out, " %*s", right ? padding : 0, "");
    for (; *text != '\0'; text++)
        fprintf(out, "%s%c", *text == '|' ? "\\" : "", *text);
    fprintf(out, "%*s |", right ? 0 : padding, "");
}

static void markdown_rule(FILE *out, int width, bool right)
{
    fputc(' ', out);
    for (int i = right ? 1 : 0; i < width; i++)
        fputc('-', out);
    fputs(right ? ": |" : " |", out);
}

void cli_table_markdown(const cli_table *table, FILE *out)
{
    int widths[COLUMNS] = {0};
    for (int i = 0; i < table->count; i++) {
        int *width = &widths[i % table->columns], needed = markdown_width(table->texts[i]);
        *width = needed > *width ? needed : *width;
    }
    const int rows = table->columns > 0 ? table->count / table->columns : 0;
    for (int line = 0; line <= rows; line++) { /* the second line is below the headings: dashes */
        fputc('|', out);
        for (int c = 0; c < table->columns; c++) {
            const int row = line == 0 ? 0 : line - 1;
            const bool right = table->how[c] & CLI_RIGHT;
            if (is_empty(table, c))
                continue;
            if (line == 1)
                markdown_rule(out, widths[c], right);
            else
                markdown_cell(out, table->texts[row * table->columns + c], widths[c], right);
        }
        fputc('\n', out);
    }
}

/* Writes a field. Quotes it if it contains a character with a meaning in CSV. */
static void csv_field(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++)
        fprintf(out, "%s%c", *text == '"' ? "\"" : "", *text);
    fputc('"', out);
}

void cli_table_csv(const cli_table *table, FILE *out)
{
    const int cells = table->columns > 0 ? table->count / table->columns * table->columns : 0;
    for (int i = 0; i < cells; i++) {
        csv_field(out, table->texts[i]);
        fputs((i + 1) % table->columns == 0 ? "\r\n" : ",", out);
    }
}
