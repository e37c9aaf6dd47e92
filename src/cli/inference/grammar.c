/* The grammar that --grammar or --json-schema names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inference/inference.h"
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

/* The rule of a reply, and how the rest of it begins. */
#define REPLY "tessera-reply"

/* Creates a grammar of replies: `before`, in GBNF, and then what the text says. */
static tsr_status create_reply(const tsr_tokenizer *tokenizer, const char *before, bool schema,
                               const char *text, size_t size, tsr_grammar **out)
{
    const size_t capacity = size + strlen(before) + 64;
    char *whole = cli_alloc(capacity, 1);
    size_t used = 0;
    if (!schema) {
        memcpy(whole, text, size);
        used = size;
    }
    used += (size_t)snprintf(whole + used, capacity - used, "\n" REPLY " ::= %s %s", before,
                             schema ? "%json " : "root\n");
    if (schema) {
        memcpy(whole + used, text, size);
        used += size;
    }
    const tsr_status status =
        tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = whole,
                                              .size_bytes = used, .root = REPLY),
                           out);
    free(whole);
    return status;
}

tsr_status inference_read_grammar(const tsr_tokenizer *tokenizer,
                                  const inference_grammar_files *files, const char *before,
                                  tsr_grammar **out, char *problem, size_t size)
{
    const bool schema = files->schema != NULL;
    const char *path = schema ? files->schema : files->grammar;
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
    const tsr_status status =
        before != NULL
            ? create_reply(tokenizer, before, schema, text, text_size, out)
            : tsr_grammar_create(
                  tsr_grammar_params(.tokenizer = tokenizer, .text = text, .size_bytes = text_size,
                                     .kind = schema ? TSR_GRAMMAR_JSON_SCHEMA : TSR_GRAMMAR_GBNF),
                  out);
    free(text);
    if (status != TSR_OK)
        snprintf(problem, size, "%s: %s", path, tsr_last_error());
    return status;
}
