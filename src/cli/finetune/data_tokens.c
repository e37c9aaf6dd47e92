/* The tokens of documents, and problems with lines. */
#include <stdarg.h>
#include <stdlib.h>

#include "cli/finetune/data_document.h"
#include "cli/lib/memory.h"

bool data_refuse(data_problem *problem, data_problem_kind kind, const char *format, ...)
{
    va_list arguments;
    problem->kind = kind;
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return false;
}

void data_document_free(data_document *document)
{
    free(document->ids);
    free(document->weights);
    *document = (data_document){0};
}

void data_document_add(data_document *d, const int32_t *ids, uint64_t count, float weight)
{
    if (d->count + count > d->capacity) {
        d->capacity = 2 * (d->count + count);
        d->ids = cli_resize(d->ids, d->capacity, sizeof *d->ids);
        d->weights = cli_resize(d->weights, d->capacity, sizeof *d->weights);
    }
    for (uint64_t i = 0; i < count; i++) {
        d->ids[d->count] = ids[i];
        d->weights[d->count++] = weight;
    }
}

uint64_t data_document_trained(const data_document *document, uint64_t first, uint64_t count)
{
    uint64_t trained = 0;
    for (uint64_t i = first + 1; i < first + count; i++)
        trained += document->weights[i] != 0;
    return trained;
}
