/* Checks how a public function handles structs of other sizes than its own (base.h). */
#ifndef TESTS_SUPPORT_STRUCT_SIZES_H
#define TESTS_SUPPORT_STRUCT_SIZES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/base.h"

/* Calls the function with `given`, a struct of any size. */
typedef tsr_status struct_sizes_fn(void *given);

/* A struct of the public interface, and a function that takes or writes it. */
typedef struct struct_sizes_case {
    const char *name; /* of the type */
    size_t size;
    const void *good; /* a struct with which the function succeeds */
    size_t shortest;  /* the function also succeeds with the first `shortest` bytes of `good` */
    bool written;     /* the function writes the struct */
    struct_sizes_fn *call;
} struct_sizes_case;

#define STRUCT_SIZES_SPARE 16

static inline const char *struct_sizes_check(const struct_sizes_case *c, unsigned char *given)
{
    static char text[512];
    const size_t longer = c->size + STRUCT_SIZES_SPARE, none = 0;
    tsr_status status;
#define STRUCT_SIZES_EXPECT(condition, what)                                                       \
    if (!(condition)) {                                                                            \
        snprintf(text, sizeof text, "%s, %s: %s: %s", c->name, what, tsr_status_name(status),      \
                 status == TSR_OK ? "" : tsr_last_error());                                        \
        return text;                                                                               \
    }
    memset(given, 0xff, longer);
    memcpy(given, c->good, c->size);
    memcpy(given, &c->shortest, sizeof c->shortest);
    memset(given + c->shortest, 0xff, longer - c->shortest);
    status = c->call(given);
    STRUCT_SIZES_EXPECT(status == TSR_OK, "shorter");
    for (size_t i = c->shortest; i < longer; i++)
        STRUCT_SIZES_EXPECT(given[i] == 0xff, "bytes after a shorter struct are written");
    memcpy(given, c->good, c->size);
    memcpy(given, &longer, sizeof longer);
    memset(given + c->size, c->written ? 0xff : 0, STRUCT_SIZES_SPARE);
    status = c->call(given);
    STRUCT_SIZES_EXPECT(status == TSR_OK, "longer");
    for (size_t i = c->size; i < longer; i++)
        STRUCT_SIZES_EXPECT(given[i] == 0, "fields that the library does not know are not 0");
    if (!c->written) {
        given[longer - 1] = 1;
        status = c->call(given);
        STRUCT_SIZES_EXPECT(status == TSR_ERR_INVALID && strstr(tsr_last_error(), c->name) &&
                                strstr(tsr_last_error(), "a field of a newer library"),
                            "an unknown field");
        given[longer - 1] = 0;
    }
    memcpy(given, &none, sizeof none);
    status = c->call(given);
    STRUCT_SIZES_EXPECT(status == TSR_ERR_INVALID && strstr(tsr_last_error(), c->name) &&
                            strstr(tsr_last_error(), "struct_size is 0"),
                        "no size");
#undef STRUCT_SIZES_EXPECT
    return NULL;
}

/* Returns what is wrong, or NULL: a shorter struct must be filled, or written as far as it goes; a
 * longer one refused by its name if it has a field that is not 0; one without a size refused. */
static inline const char *struct_sizes_problem(const struct_sizes_case *c)
{
    unsigned char *given = malloc(c->size + STRUCT_SIZES_SPARE);
    const char *problem = given ? struct_sizes_check(c, given) : "no memory";
    free(given);
    return problem;
}

#endif
