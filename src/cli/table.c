#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/memory.h"

#define COLUMNS 24
#define GAP 2

struct cli_table {
    int columns;
    int right[COLUMNS];
    int count; /* of texts: the headings, then the cells */
    char **texts;
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
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    size_t size = length < 0 ? 1 : (size_t)length + 1;
    char *text = cli_alloc(size, 1);
    va_start(arguments, format);
    vsnprintf(text, size, format, arguments);
    va_end(arguments);
    table->texts = cli_resize(table->texts, (size_t)table->count + 1, sizeof *table->texts);
    table->texts[table->count++] = text;
}

void cli_table_column(cli_table *table, const char *heading, int right)
{
    if (table->columns == COLUMNS)
        return;
    table->right[table->columns++] = right;
    cli_table_cell(table, "%s", heading);
}

/* Characters, not bytes: UTF-8 continuation bytes take no room. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

void cli_table_print(const cli_table *table, FILE *out, int indent)
{
    int widths[COLUMNS] = {0};
    int rows = table->columns == 0 ? 0 : table->count / table->columns;
    for (int i = 0; i < rows * table->columns; i++) {
        int *width = &widths[i % table->columns];
        int needed = width_of(table->texts[i]);
        *width = needed > *width ? needed : *width;
    }
    for (int row = 0; row < rows; row++) {
        fprintf(out, "%*s", indent, "");
        int owed = 0; /* spaces before the next text: none are printed at a line's end */
        for (int column = 0; column < table->columns; column++) {
            const char *text = table->texts[row * table->columns + column];
            int padding = widths[column] - width_of(text);
            if (table->right[column])
                owed += padding;
            if (text[0] != '\0') {
                fprintf(out, "%*s%s", owed, "", text);
                owed = 0;
            }
            owed += GAP + (table->right[column] ? 0 : padding);
        }
        fputc('\n', out);
    }
}
