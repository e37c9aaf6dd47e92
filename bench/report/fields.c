#include "bench/report/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void bench_field_fail(bench_fields *in, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (in->failed)
        return;
    in->failed = true;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(in->problem, sizeof in->problem, "%s%s%s", in->where, in->where[0] != '\0' ? ": " : "",
             text);
}

const json_t *bench_field(bench_fields *in, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL)
        bench_field_fail(in, "there is no \"%s\"", name);
    return value;
}

const char *bench_field_text(bench_fields *in, const json_t *object, const char *name)
{
    const json_t *value = bench_field(in, object, name);
    if (value != NULL && !json_is_string(value))
        bench_field_fail(in, "\"%s\" is not a string", name);
    return json_is_string(value) ? json_string_value(value) : "";
}

bool bench_field_bool(bench_fields *in, const json_t *object, const char *name)
{
    const json_t *value = bench_field(in, object, name);
    if (value != NULL && !json_is_boolean(value))
        bench_field_fail(in, "\"%s\" is neither true nor false", name);
    return json_is_true(value);
}

static double number_of(bench_fields *in, const json_t *object, const char *name)
{
    const json_t *value = bench_field(in, object, name);
    if (value != NULL && !json_is_number(value))
        bench_field_fail(in, "\"%s\" is not a number", name);
    return json_number_value(value);
}

double bench_field_number(bench_fields *in, const json_t *object, const char *name, double low)
{
    double number = number_of(in, object, name);
    if (!isfinite(number) || number < low)
        bench_field_fail(in, "\"%s\" is %g, not a number of at least %g", name, number, low);
    return number;
}

double bench_field_whole(bench_fields *in, const json_t *object, const char *name, double low)
{
    double number = bench_field_number(in, object, name, low);
    if (floor(number) != number)
        bench_field_fail(in, "\"%s\" is %g, not an integer", name, number);
    return number;
}

double bench_field_positive(bench_fields *in, const json_t *object, const char *name)
{
    double number = number_of(in, object, name);
    if (!isnormal(number) || number < 0)
        bench_field_fail(in, "\"%s\" is %g, not a normal number above 0", name, number);
    return number;
}

const json_t *bench_field_object(bench_fields *in, const json_t *object, const char *name,
                                 bool or_null)
{
    const json_t *value = bench_field(in, object, name);
    if (or_null && json_is_null(value))
        return NULL;
    if (value != NULL && !json_is_object(value))
        bench_field_fail(in, "\"%s\" is not an object", name);
    return value;
}

const json_t *bench_field_array(bench_fields *in, const json_t *object, const char *name)
{
    const json_t *value = bench_field(in, object, name);
    if (value != NULL && (!json_is_array(value) || json_array_size(value) > BENCH_MAX_FIELDS))
        bench_field_fail(in, "\"%s\" is not an array of at most %d elements", name,
                         BENCH_MAX_FIELDS);
    return value;
}

int bench_field_place(bench_fields *in, const json_t *object, const char *name, int count)
{
    const json_t *value = bench_field(in, object, name);
    if (value == NULL || json_is_null(value))
        return -1;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= count) {
        bench_field_fail(in, "\"%s\" is not an index below %d", name, count);
        return -1;
    }
    return (int)json_integer_value(value);
}
