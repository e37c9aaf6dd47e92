#include "cli/lib/suggest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 40 /* no command or option has a longer name */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the optimal string alignment distance of two words of at most LONGEST characters: the
 * Levenshtein distance in which an exchange of two neighbours is one edit. */
static size_t count_edits(const char *a, const char *b)
{
    const size_t rows = strlen(a), columns = strlen(b);
    /* before[j], above[j] and row[j]: the edits from the first i − 2, i − 1 and i characters of `a`
     * to the first j of `b` */
    size_t lines[3][LONGEST + 1], *before = lines[0], *above = lines[1], *row = lines[2];
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            row[j] =
                smaller(smaller(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
    }
    return row[columns];
}

void cli_suggestion_offer(cli_suggestion *suggestion, const char *name)
{
    const size_t length = strlen(suggestion->word);
    if (length > LONGEST || strlen(name) > LONGEST)
        return;
    /* A name that the word begins counts as one edit away, and other names may be nearer. */
    const bool begins = length >= 3 && strncmp(name, suggestion->word, length) == 0;
    const size_t edits = begins ? 1 : count_edits(suggestion->word, name);
    if ((begins || edits <= length / 3) &&
        (suggestion->name == NULL || edits < suggestion->edits)) {
        suggestion->name = name;
        suggestion->edits = edits;
    }
}

const char *cli_suggestion_text(const cli_suggestion *suggestion, const char *dashes,
                                const char *help, char text[CLI_SUGGESTION_TEXT])
{
    if (suggestion->name != NULL)
        snprintf(text, CLI_SUGGESTION_TEXT, "did you mean '%s%s'?", dashes, suggestion->name);
    else
        snprintf(text, CLI_SUGGESTION_TEXT, "see 'tessera %s'", help);
    return text;
}
