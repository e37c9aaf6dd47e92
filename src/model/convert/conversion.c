#include "model/convert/conversion.h"

#include <stdio.h>

void tsr__conversion_note(const tsr__conversion *c, const char *format, ...)
{
    char text[512];
    va_list arguments;
    if (!c->params->note)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    c->params->note(c->params->user, text);
}

tsr_shard_param tsr__conversion_param(const tsr__converted *t)
{
    tsr_shard_param param = {.name = t->name, .dtype = tsr_dtype_name(t->dtype), .ndim = t->ndim};
    for (int d = 0; d < t->ndim; d++)
        param.shape[d] = t->shape[d];
    return param;
}
