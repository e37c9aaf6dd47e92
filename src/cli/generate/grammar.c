/* The grammar of the texts that tessera generate writes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/memory.h"

/* Reads a file of at most TSR_GRAMMAR_MAX_TEXT bytes. Returns NULL if it cannot be read. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    char *text = cli_alloc(TSR_GRAMMAR_MAX_TEXT + 1, 1);
    *size = fread(text, 1, TSR_GRAMMAR_MAX_TEXT + 1, file);
    const int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error != 0) {
        free(text);
        errno = error;
        return NULL;
    }
    return text;
}

tsr_status generate_read_grammar(const tsr_tokenizer *tokenizer, tsr_grammar **out, char *problem,
                                 size_t size)
{
    const bool schema = generate_chosen.schema != NULL;
    const char *path = schema ? generate_chosen.schema : generate_chosen.grammar;
    size_t text_size = 0;
    if (path == NULL)
        return TSR_OK;
    if (tokenizer == NULL) {
        snprintf(problem, size, "%s needs a tokenizer, and the model has none",
                 schema ? "--json-schema" : "--grammar");
        return TSR_ERR_INVALID;
    }
    char *text = read_file(path, &text_size);
    if (text == NULL) {
        snprintf(problem, size, "%s: %s", path, strerror(errno));
        return TSR_ERR_IO;
    }
    const tsr_status status = tsr_grammar_create(
        tsr_grammar_params(.tokenizer = tokenizer, .text = text, .size_bytes = text_size,
                           .kind = schema ? TSR_GRAMMAR_JSON_SCHEMA : TSR_GRAMMAR_GBNF),
        out);
    free(text);
    if (status != TSR_OK)
        snprintf(problem, size, "%s: %s", path, tsr_last_error());
    return status;
}
